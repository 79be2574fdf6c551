// The application in a process of its own. It tells its port, and its CPU time when asked.
import { app } from "./application.mjs";

const server = app.listen(0, "127.0.0.1", () => process.send({ port: server.address().port }));
process.on("message", () => process.send({ cpu: process.cpuUsage() }));
