"""A scripted model and a tool on this machine, which count: an OpenAI-compatible server that has the tool called once and
then says what came of it, and the office that the tool books a room at."""

import http.server
import json
import threading

from gate import Server

KEY = "model-key-of-the-tour"


class Model:
    """`calls` are the requests for completions, `bookings` what the tool did, by their idempotency keys."""

    def __init__(self):
        self.calls, self.bookings, self.refused = [], [], []
        self._lock = threading.Lock()
        self._server = Server(("127.0.0.1", 0), self._handler())
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def stop(self):
        self._server.shutdown()
        self._server.server_close()

    def complete(self, request):
        """The message with which the model answers: by what it sees, so that the same request gets the same answer."""
        results = [message["content"] for message in request["messages"] if message["role"] == "tool"]
        if results:
            return {"role": "assistant", "content": f"Done: {results[-1]}"}, "stop"
        name, arguments = "book", {"room": "blue", "hour": 9}
        if any(tool["function"]["name"] == "Write" for tool in request.get("tools", [])):
            name, arguments = "Write", {"file_path": "minutes.txt", "content": "We met."}
        call = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        return {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"

    def instructions(self):
        """The system messages of each request so far."""
        system = lambda request: " ".join(str(said["content"]) for said in request["messages"] if said["role"] == "system")
        with self._lock:
            return [system(request) for request in self.calls]

    def _handler(model):
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
                if self.path == "/v1/chat/completions":
                    self._complete(body)
                elif self.path == "/book":
                    with model._lock:
                        model.bookings.append((self.headers.get("idempotency-key"), body))
                    self._answer(200, "application/json", json.dumps({"booked": body["room"]}))
                else:
                    self._answer(404, "text/plain", "there is nothing here")

            def _complete(self, request):
                if self.headers.get("authorization") != f"Bearer {KEY}":
                    with model._lock:
                        model.refused.append(self.headers.get("authorization"))
                    error = {"error": {"message": "Incorrect API key provided", "code": "invalid_api_key"}}
                    self._answer(401, "application/json", json.dumps(error))
                    return
                with model._lock:
                    model.calls.append(request)
                message, finish = model.complete(request)
                usage = {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25}
                if not request.get("stream"):
                    choice = {"index": 0, "message": message, "finish_reason": finish}
                    whole = {"id": "c", "object": "chat.completion", "model": "tour", "choices": [choice], "usage": usage}
                    self._answer(200, "application/json", json.dumps(whole))
                    return
                calls = [call | {"index": index} for index, call in enumerate(message.get("tool_calls", []))]
                delta = {"role": "assistant", "content": message["content"]} | ({"tool_calls": calls} if calls else {})
                pieces = [
                    {"id": "c", "model": "tour", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
                    {"id": "c", "model": "tour", "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]},
                    {"id": "c", "model": "tour", "choices": [], "usage": usage},
                ]
                events = "".join(f"data: {json.dumps(piece)}\n\n" for piece in pieces) + "data: [DONE]\n\n"
                self._answer(200, "text/event-stream", events)

            def _answer(self, status, kind, text):
                content = text.encode()
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_):
                pass

        return Handler


def write_workspace(folder, model, rules):
    """A workspace with one agent, whose one tool needs an approval."""
    files = {
        "AGENTS.md": f"{rules}\n",
        ".openharness/agents/clerk.md": (
            "---\ndescription: Books rooms.\nmodel: workspace/tour\npolicy:\n  max_steps: 5\n"
            "  approval:\n    external: [book]\n---\nYou book rooms.\n"
        ),
        ".openharness/models/models.yaml": (
            f"tour:\n  provider: openai-compatible\n  name: tour\n  url: {model.url}/v1\n  key: ${{secrets.MODEL_KEY}}\n"
        ),
        ".openharness/tools/settings.yaml": (
            f"book:\n  http:\n    method: POST\n    url: {model.url}/book\n    description: Books a room.\n"
            "    input_schema:\n      type: object\n      properties: {room: {type: string}, hour: {type: integer}}\n"
            "      required: [room, hour]\n"
        ),
    }
    for path, text in files.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
