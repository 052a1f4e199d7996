"""Between the functions and the emulator: passes requests on, remembers which of them were denied, and can do what a
network and a service do: hold one back for ever, as a machine that dies in the midst of its work, refuse some because there
are too many, answer none to the table, or do what they ask and lose the answer."""

import collections
import contextlib
import http.client
import http.server
import json
import threading

# Where Parameter Store hands secrets of Secrets Manager through, which the emulator does not do.
REFERENCE = "/aws/reference/secretsmanager/"

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256


class Gate:
    def __init__(self, port, behind, secret=None):
        """`secret` gives the content of a secret of Secrets Manager by its name, or nothing where there is none."""
        self.behind = behind
        self.secret = secret
        self.denied = []
        self.held = threading.Event()
        self._dropped = threading.Event()
        self._wanted = None
        self._lock = threading.Lock()
        self._throttled, self._lost = collections.Counter(), collections.Counter()
        self._is_table_away = False
        server = Server(("127.0.0.1", port), self._handler())
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def hold(self, operation):
        """The next request for `operation` reaches nobody; `held` tells when it was made."""
        self.held.clear()
        self._dropped.clear()
        self._wanted = operation

    def drop(self):
        """Cuts the connection of what is held."""
        self._dropped.set()

    def throttle(self, operation, times):
        """The next `times` requests for `operation` are refused, as by a table that is asked too much."""
        self._throttled[operation] = times

    def lose(self, operation, times):
        """The next `times` requests for `operation` are done, and nobody hears of it."""
        self._lost[operation] = times

    @contextlib.contextmanager
    def table_away(self):
        """Within it no request to a table is answered: its connection is cut."""
        self._is_table_away = True
        try:
            yield
        finally:
            self._is_table_away = False

    def hand_through(self, names):
        """What Parameter Store answers to a request for `names`, which are secrets of Secrets Manager."""
        values = {name: self.secret(name.removeprefix(REFERENCE)) for name in names}
        found = [
            {"Name": name, "Type": "SecureString", "Value": value} for name, value in values.items() if value is not None
        ]
        return {"Parameters": found, "InvalidParameters": [name for name, value in values.items() if value is None]}

    def planned(self):
        """What was to be refused or lost and was not yet."""
        return {name: left for name, left in (self._throttled + self._lost).items() if left}

    def _takes(self, plan, operation):
        with self._lock:
            if plan[operation] <= 0:
                return False
            plan[operation] -= 1
            return True

    def is_wanted(self, operation):
        with self._lock:
            if self._wanted != operation:
                return False
            self._wanted = None
            return True

    def _handler(gate):
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def pass_on(self):
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                operation = self.headers.get("x-amz-target", "").rpartition(".")[2] or f"{self.command} {self.path}"
                if gate._is_table_away and self.headers.get("x-amz-target", "").startswith("DynamoDB_"):
                    self.close_connection = True
                    return
                if gate.is_wanted(operation):
                    gate.held.set()
                    gate._dropped.wait()
                    self.close_connection = True
                    return
                if gate._takes(gate._throttled, operation):
                    self.refuse()
                    return
                if operation == "GetParameters" and REFERENCE.encode() in body:
                    self.answer(200, "application/x-amz-json-1.1", gate.hand_through(json.loads(body)["Names"]))
                    return
                behind = http.client.HTTPConnection("127.0.0.1", gate.behind, timeout=60)
                # The signature covers the host: it stays what the function sent.
                behind.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    if name.lower() not in HOP_BY_HOP:
                        behind.putheader(name, value)
                behind.putheader("content-length", str(len(body)))
                behind.endheaders(body)
                answer = behind.getresponse()
                content = answer.read()
                if answer.status in (401, 403) or b"AccessDenied" in content:
                    gate.denied.append(f"{operation}: {content[:300].decode(errors='replace')}")
                behind.close()
                if gate._takes(gate._lost, operation):
                    self.close_connection = True
                    return
                try:
                    self.hand_back(answer, content)
                except OSError:
                    self.close_connection = True  # Who asked gave up, and asks again.

            def refuse(self):
                kind = "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException"
                self.answer(400, "application/x-amz-json-1.0", {"__type": kind, "message": "asked too much"})

            def answer(self, status, kind, content):
                content = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def hand_back(self, answer, content):
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in HOP_BY_HOP | {"date", "server"}:
                        self.send_header(name, value)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PUT = do_DELETE = pass_on

            def log_message(self, *_):
                pass

        return Handler
