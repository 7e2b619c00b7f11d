// Receives signed calls of detent: npm install standardwebhooks, then WEBHOOK_SECRET=whsec_… node receiver.mjs
// The body is verified as it came, before it is parsed. An old call is refused, so a recorded one cannot be sent again.
import { createServer } from "node:http";
import { Webhook } from "standardwebhooks";

const webhook = new Webhook(process.env.WEBHOOK_SECRET);
const done = new Set(); // in a real service: a table, in the transaction that does the work

const server = createServer(async (request, response) => {
  const parts = [];
  for await (const part of request) parts.push(part);
  let payload;
  try {
    payload = webhook.verify(Buffer.concat(parts).toString("utf8"), request.headers);
  } catch (error) {
    response.writeHead(401).end(error.message);
    return;
  }
  const id = request.headers["webhook-id"]; // the same for every attempt of a run
  if (!done.has(id)) {
    done.add(id);
    console.log("received", id, JSON.stringify(payload));
  }
  response.writeHead(204).end();
});
server.listen(Number(process.env.PORT ?? 9001), "127.0.0.1", () => console.log("listening on", server.address().port));
