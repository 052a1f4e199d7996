"""Clients that others wrote, against local mode: each function is a test, and prints its name when it holds."""

import asyncio
import http.server
import json
import os
import sys
import threading
import uuid
from datetime import datetime, timedelta, timezone

import httpx
import websockets
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientHTTPError, A2AClientJSONRPCError
from a2a.types import (
    DataPart,
    GetTaskPushNotificationConfigParams,
    Message,
    Part,
    PushNotificationConfig,
    Role,
    TaskIdParams,
    TaskPushNotificationConfig,
    TaskQueryParams,
    TextPart,
)
from standardwebhooks import Webhook

BASE, KEY = os.environ["BASE"], os.environ["KEY"]
VERSION = "agents-protocol-2026-04-25"
HEADERS = {"authorization": f"Bearer {KEY}", "harn-agents-protocol-version": VERSION}
SECRET = os.environ["DORMOUSE_VAULT_default_HOOK"]
# Sockets that are open at once, which the server has to hold with less memory than this, in bytes for each.
SOCKETS, EACH = 1000, 100 * 1024 * 1024 // 1000


class Api:
    """The protocol over REST."""

    def __init__(self):
        self.http = httpx.AsyncClient(base_url=BASE, headers=HEADERS, timeout=60)

    async def get(self, path):
        answer = await self.http.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def post(self, path, body, status=(200, 201, 202)):
        answer = await self.http.post(path, json=body)
        assert answer.status_code in status, f"{path}: {answer.status_code} {answer.text}"
        return answer.json()

    async def session(self):
        workspace = await self.post("/v1/workspaces", {"name": "clients", "root": "/"})
        session = await self.post("/v1/sessions", {"workspace_id": workspace["id"]})
        return workspace["id"], session["id"]


def message(*parts, **more):
    parts = [Part(root=TextPart(text=p) if isinstance(p, str) else DataPart(data=p)) for p in parts]
    return Message(role=Role.user, message_id=str(uuid.uuid4()), parts=parts, **more)


async def a2a_client(http, **config):
    card = await A2ACardResolver(http, BASE).get_agent_card()
    assert card.preferred_transport == "JSONRPC" and card.url == f"{BASE}/a2a", card
    return ClientFactory(ClientConfig(httpx_client=http, **config)).create(card)


async def told(client, said):
    return [event async for event in client.send_message(said)]


EXPENSE = {"employee": "Ada", "amount_cents": 12000, "purpose": "a keyboard"}
EXPENSES = {"persona_id": "persona_expense-approval"}


async def a2a_sends_asks_and_answers(api):
    client = await a2a_client(api.http, streaming=False)
    events = await told(client, message(EXPENSE, metadata=EXPENSES))
    task, _ = events[-1]
    assert task.status.state in ("input-required", "auth-required"), task
    assert task.status.message.parts, task
    answer = message({"approved": True}, task_id=task.id, context_id=task.context_id)
    events = await told(client, answer)
    done, _ = events[-1]
    assert (done.id, done.context_id, done.status.state) == (task.id, task.context_id, "completed"), done
    assert done.artifacts and done.artifacts[0].parts[0].root.data, done
    again, _ = (await told(client, answer))[-1]
    assert again.id == done.id and again.status.state == "completed", again
    got = await client.get_task(TaskQueryParams(id=task.id, history_length=1))
    assert len(got.history) <= 1 and got.status.state == "completed", got
    rest = await api.get(f"/v1/tasks/{task.id}")
    assert rest["status"] == "COMPLETED" and rest["session_id"] == task.context_id, rest


async def a2a_streams_and_resubscribes(api):
    client = await a2a_client(api.http, streaming=True)
    events = await told(client, message(EXPENSE, metadata=EXPENSES))
    first, _ = events[0]
    last, update = events[-1]
    assert last.id == first.id and last.status.state in ("input-required", "auth-required"), last
    assert update is None or update.final, update

    async def follow():
        # The SDK gives the same task with each update and changes it: its state is noted as it was.
        steps = client.resubscribe(TaskIdParams(id=first.id))
        return [(task.status.state, update) async for task, update in steps]

    following = asyncio.create_task(follow())
    await asyncio.sleep(1)
    assert not following.done(), "a task that asks is followed until somebody has answered it"
    yes = {"role": "user", "parts": [{"type": "json", "value": {"approved": True}, "visibility": "public"}]}
    await api.post(f"/v1/tasks/{first.id}/messages", {"kind": "input", "message": yes})
    followed = await asyncio.wait_for(following, 120)
    assert followed[0][0] == last.status.state, followed
    assert followed[-1][1].status.state == "completed" and followed[-1][1].final, followed
    assert (await follow())[-1][0] == "completed"
    said = await told(client, message("Hello there"))
    assert said[-1][0].status.state == "completed", said
    words = [part.root.text for part in said[-1][0].status.message.parts] if said[-1][0].status.message else []
    got = await client.get_task(TaskQueryParams(id=said[-1][0].id))
    assert any(one.role == Role.agent for one in got.history), (words, got)


async def a2a_takes_no_wait_for_a_time_for_a_question(api):
    client = await a2a_client(api.http, streaming=True)
    reminder = message({"text": "tea", "after": "PT2S"}, metadata={"persona_id": "persona_reminder"})
    events = await told(client, reminder)
    updates = [update for _, update in events if update]
    statuses = [update for update in updates if update.kind == "status-update"]
    states = [update.status.state for update in statuses]
    assert "input-required" not in states and states[-1] == "completed", states
    assert [update.final for update in statuses].count(True) == 1, events
    made = [update.artifact for update in updates if update.kind == "artifact-update"]
    assert made and made[0].parts[0].root.data["text"] == "tea", updates
    assert events[-1][0].artifacts, "the task that the client puts together has it, too"


async def a2a_cancels_and_repeats_nothing(api):
    client = await a2a_client(api.http, streaming=False)
    said = message(EXPENSE, metadata=EXPENSES)
    one, two = (await told(client, said))[-1][0], (await told(client, said))[-1][0]
    assert (one.id, one.context_id) == (two.id, two.context_id), "the same message is the same task"
    canceled = await client.cancel_task(TaskIdParams(id=one.id))
    assert canceled.status.state == "canceled", canceled
    for ask, code in [
        (client.cancel_task(TaskIdParams(id=one.id)), -32002),
        (client.get_task(TaskQueryParams(id="task_00000000000000000000000000")), -32001),
        (told(client, message("x", task_id=one.id, context_id=one.context_id)), None),
    ]:
        try:
            answer = await ask
            raise AssertionError(f"it was not refused: {answer}")
        except A2AClientJSONRPCError as error:
            assert code in (None, error.error.code), error
    stranger = httpx.AsyncClient(timeout=60)
    try:
        await told(await a2a_client(stranger, streaming=False), message("Hello"))
        raise AssertionError("a stranger is served")
    except A2AClientHTTPError as error:
        assert error.status_code == 401, error


async def sockets_follow_and_steer(api):
    _, session = await api.session()
    task = await api.post(f"/v1/sessions/{session}/tasks", {"persona_id": "persona_expense-approval", "input": EXPENSE})
    url = f"{BASE.replace('http', 'ws')}/v1/tasks/{task['id']}/stream"
    seen = []
    async with websockets.connect(url, additional_headers=HEADERS) as socket:
        while not any(frame["event"]["event"] == "task.auth_required" for frame in seen):
            frame = json.loads(await asyncio.wait_for(socket.recv(), 60))
            if frame["type"] == "event":
                seen.append(frame)
            assert "required" not in frame.get("event", {}).get("event", "") or len(seen) > 2
            if frame.get("event", {}).get("event") == "task.input_required":
                break
        await socket.send(json.dumps({"type": "ping", "id": 1}))
        parts = [{"type": "json", "value": {"approved": True}, "visibility": "public"}]
        said = {"type": "input", "id": "yes", "message": {"role": "user", "parts": parts}}
        await socket.send(json.dumps(said))
        kinds = set()
        while "task.completed" not in kinds or "result" not in kinds or "pong" not in kinds:
            frame = json.loads(await asyncio.wait_for(socket.recv(), 60))
            assert frame["type"] != "error", frame
            kinds.add(frame["event"]["event"] if frame["type"] == "event" else frame["type"])
            if frame["type"] == "event":
                seen.append(frame)
        # One cursor over all transports.
        first = seen[0]["event"]["id"]
        await socket.send(json.dumps({"type": "resume", "after_event_id": first}))
        again = json.loads(await asyncio.wait_for(socket.recv(), 60))
        assert again["replayed"] and again["event"]["id"] == seen[1]["event"]["id"], again
    rest = await api.get(f"/v1/tasks/{task['id']}/events?after_event_id={first}")
    assert rest["data"][0]["id"] == seen[1]["event"]["id"]
    browser = {"subprotocols": [VERSION, f"bearer.{KEY}"], "origin": BASE}
    async with websockets.connect(url, **browser) as socket:
        assert socket.subprotocol == VERSION
        assert json.loads(await socket.recv())["event"]["id"] == first
    for headers, status in [({}, 426), ({**HEADERS, "authorization": "Bearer wrong"}, 401)]:
        try:
            await websockets.connect(url, additional_headers=headers)
            raise AssertionError("it opens")
        except websockets.InvalidStatus as refused:
            assert refused.response.status_code == status, refused
    for frame, code in [("x" * 300_000, 1009), (b"\x00", 1003)]:
        async with websockets.connect(url, additional_headers=HEADERS) as socket:
            await socket.send(frame)
            try:
                while True:
                    await asyncio.wait_for(socket.recv(), 60)
            except websockets.ConnectionClosed as closed:
                assert closed.rcvd and closed.rcvd.code == code, closed


class Receiver(http.server.BaseHTTPRequestHandler):
    """Takes webhooks; refuses the first of each with 500."""

    taken = []
    seen = set()

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        id = self.headers["webhook-id"]
        status = 204 if id in self.seen else 500
        self.seen.add(id)
        self.taken.append((status, dict(self.headers), body))
        self.send_response(status)
        self.end_headers()

    def log_message(self, *_):
        pass


async def webhooks_go_out_and_are_tried_again(api):
    receiver = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{receiver.server_port}/hook"
    _, session = await api.session()
    hook = await api.post(f"/v1/sessions/{session}/webhooks", {"url": url})
    task = await api.post(f"/v1/sessions/{session}/tasks", {"persona_id": "persona_expense-approval", "input": EXPENSE})

    client = await a2a_client(api.http, streaming=False)
    task_of_a2a, _ = (await told(client, message(EXPENSE, metadata=EXPENSES)))[-1]
    set = TaskPushNotificationConfig(
        task_id=task_of_a2a.id, push_notification_config=PushNotificationConfig(url=url, token="t0k3n")
    )
    made = await client.set_task_callback(set)
    assert made.task_id == task_of_a2a.id and made.push_notification_config.id, made
    got = await client.get_task_callback(GetTaskPushNotificationConfigParams(id=task_of_a2a.id))
    assert got.push_notification_config.url == url, got
    await client.cancel_task(TaskIdParams(id=task_of_a2a.id))

    def delivered():
        return [(headers, json.loads(body), body) for status, headers, body in Receiver.taken if status == 204]

    for _ in range(600):
        if len(delivered()) == 2:
            break
        await asyncio.sleep(0.1)
    both = {("type" in body): (headers, body, raw) for headers, body, raw in delivered()}
    headers, body, raw = both[True]
    assert Webhook(hook["secret"]).verify(raw, headers) == body, "signed by the key of the webhook"
    assert body["data"]["task_id"] == task["id"] and body["type"].endswith("_required"), body
    headers, body, _ = both[False]
    assert headers["x-a2a-notification-token"] == "t0k3n", headers
    assert (body["kind"], body["id"], body["status"]["state"]) == ("task", task_of_a2a.id, "canceled"), body
    receiver.shutdown()


def memory():
    with open(f"/proc/{os.environ['SERVER']}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def a_thousand_sockets_are_held(api):
    if not os.path.exists("/proc/self/statm"):
        print("ignored: there is no /proc here")
        return
    _, session = await api.session()
    task = await api.post(f"/v1/sessions/{session}/tasks", {"persona_id": "persona_expense-approval", "input": EXPENSE})
    url = f"{BASE.replace('http', 'ws')}/v1/tasks/{task['id']}/stream"
    before, opened, refused = memory(), [], 0
    keys = [KEY]
    for number in range(SOCKETS):
        try:
            headers = {**HEADERS, "authorization": f"Bearer {keys[number % len(keys)]}"}
            opened.append(await websockets.connect(url, additional_headers=headers, open_timeout=60))
        except websockets.InvalidStatus as error:
            assert error.response.status_code == 429, error
            refused += 1
    used = memory() - before
    # One caller may have 100 of them; the others are refused and leave room for other callers.
    assert (len(opened), refused) == (100, SOCKETS - 100), (len(opened), refused)
    assert used < EACH * len(opened), f"{used} bytes for {len(opened)} sockets"
    print(f"{used // len(opened)} bytes for each of {len(opened)} sockets")
    for socket in opened:
        await socket.close()


async def webhooks_come_in_once(api):
    workspace, session = await api.session()
    vault = {"provider": "env", "capabilities": ["webhooks:verify"], "workspace_id": workspace}
    vault = await api.post("/v1/vaults", vault)
    connector = await api.post(
        "/v1/connectors",
        {
            "provider": "issues",
            "workspace_id": workspace,
            "target_session_id": session,
            "target_persona_id": "persona_expense-approval",
            "auth": {"scheme": "standard_webhooks", "vault_id": vault["id"], "secrets": ["HOOK"]},
            "mapping": {"kind": "task", "fields": {name: f"/data/{name}" for name in EXPENSE}},
        },
    )
    assert SECRET not in json.dumps(connector)
    body = json.dumps({"type": "expense.made", "data": EXPENSE})
    path = connector["webhook"]["path"]
    hook = Webhook(SECRET)

    async def deliver(id, body=body, at=None, sent=None):
        at = at or datetime.now(timezone.utc)
        headers = {"webhook-id": id, "webhook-timestamp": str(int(at.timestamp())), "webhook-signature": hook.sign(id, at, body)}
        async with httpx.AsyncClient(base_url=BASE, timeout=60) as http:
            answer = await http.post(path, content=sent or body, headers=headers)
            return answer.status_code, answer.json()

    status, made = await deliver("msg_1")
    assert (status, made["status"], made["made"]["object"]) == (200, "accepted", "task"), made
    again = await asyncio.gather(*(deliver("msg_1") for _ in range(10)))
    assert all(one[0] == 200 and one[1]["status"] == "deduped" for one in again), again
    fresh = await asyncio.gather(*(deliver("msg_2") for _ in range(10)))
    assert sorted(one[1]["status"] for one in fresh).count("accepted") == 1, fresh
    late, early = datetime.now(timezone.utc) - timedelta(minutes=6), datetime.now(timezone.utc) + timedelta(minutes=6)
    for bad in [
        await deliver("msg_3", at=late),
        await deliver("msg_3", at=early),
        await deliver("msg_3", sent=json.dumps(json.loads(body), separators=(",", ":"))),
    ]:
        assert bad[0] == 401 and bad[1]["error"]["code"] == "unauthenticated", bad
    tasks = await api.get(f"/v1/sessions/{session}/tasks")
    assert len(tasks["data"]) == 2, tasks
    seen = await api.get(f"/v1/connectors/{connector['id']}")
    assert seen["webhook"]["refused_deliveries"] == 3, seen


async def quotas_refuse_and_say_which(api):
    workspace, session = await api.session()
    quota = {"scope": "workspace", "owner_id": workspace, "limits": {"tasks": 2}, "period_seconds": 3600}
    quota = await api.post("/v1/quotas", quota)
    session = (await api.post("/v1/sessions", {"workspace_id": workspace}))["id"]
    task = {"persona_id": "persona_expense-approval", "input": EXPENSE}
    answers = await asyncio.gather(*(api.http.post(f"/v1/sessions/{session}/tasks", json=task) for _ in range(8)))
    statuses = sorted(answer.status_code for answer in answers)
    assert statuses == [202] * 2 + [429] * 6, statuses
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert int(refused.headers["retry-after"]) > 0
    assert refused.json()["error"]["details"] == {"quota_id": quota["id"], "limit": "tasks"}, refused.text
    client = await a2a_client(api.http, streaming=False)
    try:
        await told(client, message(EXPENSE, context_id=session, metadata=EXPENSES))
        raise AssertionError("A2A goes past the quota")
    except A2AClientJSONRPCError as error:
        assert error.error.code == -32010 and error.error.data["details"]["quota_id"] == quota["id"], error
    shown = await api.get(f"/v1/quotas/{quota['id']}")
    assert shown["usage"]["tasks"] == 2 and shown["exhaustion_reason"], shown


TESTS = [
    a2a_sends_asks_and_answers,
    a2a_streams_and_resubscribes,
    a2a_takes_no_wait_for_a_time_for_a_question,
    a2a_cancels_and_repeats_nothing,
    sockets_follow_and_steer,
    webhooks_come_in_once,
    webhooks_go_out_and_are_tried_again,
    quotas_refuse_and_say_which,
    a_thousand_sockets_are_held,
]


async def main():
    unknown = set(sys.argv[1:]) - {test.__name__ for test in TESTS}
    if unknown:
        sys.exit(f"there is no test {', '.join(sorted(unknown))}")
    for test in TESTS:
        if sys.argv[1:] and test.__name__ not in sys.argv[1:]:
            continue
        await test(Api())
        print(f"ok: {test.__name__}")


asyncio.run(main())
