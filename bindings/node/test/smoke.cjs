const { keyed } = require("tollkeeper");
console.log("required:", keyed("1/h").check("a").allowed);
