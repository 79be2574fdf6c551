// Says which session it sees, as Express applications do: `node server.mjs PACKAGES` prints its port.
import { createRequire } from "node:module";

const require = createRequire(`${process.argv[2]}/package.json`);
const express = require("express");
const app = express();
app.use(require("cookie-parser")());
app.use((request, response) => response.json({ session: request.cookies.sid ?? null, host: request.headers.host }));
const server = app.listen(0, "127.0.0.1", () => console.log(server.address().port));
