"""Receives signed calls of detent: pip install standardwebhooks, then WEBHOOK_SECRET=whsec_… python receiver.py

The body is verified as it came, before it is parsed. An old call is refused, so a recorded one cannot be sent again.
"""

from __future__ import annotations

import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

webhook = Webhook(os.environ["WEBHOOK_SECRET"])
done: set[str] = set()  # in a real service: a table, in the transaction that does the work


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            payload = webhook.verify(body, dict(self.headers))
        except WebhookVerificationError as error:
            self.send_error(401, str(error))
            return
        run = self.headers["webhook-id"]  # the same for every attempt of a run
        if run not in done:
            done.add(run)
            print("received", run, payload, flush=True)
        self.send_response(204)
        self.end_headers()


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "9001"))), Receiver)
    print("listening on", server.server_port, flush=True)
    server.serve_forever()
