// Stands before the server under test, because the suite knows no tokens: adds the token to every request, and changes nothing else
// but the port that the Host and the Origin name, as they name this one.
import { createServer, request } from "node:http";

const [, , target, token] = process.argv;
const server = new URL(target);

const proxy = createServer((from, to) => {
  const ours = `127.0.0.1:${proxy.address().port}`;
  const headers = { ...from.headers, authorization: `Bearer ${token}` };
  if (headers.host === ours) headers.host = server.host;
  if (headers.origin === `http://${ours}`) headers.origin = `http://${server.host}`;
  const options = { host: server.hostname, port: server.port, method: from.method, path: from.url, headers };
  const sent = request(options, (answer) => {
    to.writeHead(answer.statusCode, answer.headers);
    // A stream is to be heard from its head on.
    to.flushHeaders();
    answer.pipe(to);
  });
  sent.on("error", () => to.destroy());
  to.on("close", () => sent.destroy());
  from.pipe(sent);
});
proxy.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${proxy.address().port}/mcp`));
process.stdin.resume().on("end", () => process.exit());
