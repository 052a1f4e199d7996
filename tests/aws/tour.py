"""The tour through the front door, and what goes wrong on the way. Each step is a function; its docstring is the line
that is printed.

What the emulator does not do as AWS does, and which step is narrower for it:

- A schedule fires up to 15 seconds late (its clock ticks every 10), and its time zone is taken for UTC. Ours are UTC.
  `schedule_fires` waits longer than AWS would need.
- A target of a rule or schedule has no dead-letter queue, and what a rule or schedule delivers is not tried again when
  the function fails. `unknown_shapes` therefore hands its events to the functions as AWS does it for both, by
  asynchronous invocation; that the targets name their queue is for the unit tests of rules and schedules.
- An asynchronous invocation is tried again after 1 and 2 seconds; on AWS after one and two minutes. A claim lives for up
  to 30 seconds, so the third attempt here comes before a dead worker's claim ends: `killed_in_the_midst` uses a
  callback, whose sender tries again as `retry-after` says.
- What a function streams is delivered when it has ended: `events_streamed` sees what comes from the address of `stream`,
  not when. The test of the roles takes the first piece of a stream that goes on.
- Nothing of CodeDeploy, Application Auto Scaling and metric alarms that ring is there: aliases move at once, and that
  `Rollout`, growing tables and alarms are what AWS takes is for cfn-lint.
- Parameter Store hands no secret of Secrets Manager through: gate.py does it, for `secrets_in_a_vault`, and judges no role.
- A table is restored as it is, whatever time is given: `restored` restores before it goes on.
- `GET /health` at any host is the emulator's own, so no step asks for it.
- Roles are enforced (AUTH=true), but without `dynamodb:LeadingKeys`; every schedule is judged as one of the group
  `default`, the targets of a rule by their bus, and a request for parameters as one for all: main.py grants that
  besides. The test of the roles
  (tests/tests/roles) judges all of this as AWS does.
- The gateway checks no signature of `AWS_IAM`: it looks up whose access key the request names, and fills in
  `requestContext.authorizer.iam` as AWS does. `signed_callers` signs all the same; that a wrong signature is refused it
  cannot see.
- Each invocation takes some 100 ms more than on AWS. No step says anything about time.
"""

import concurrent.futures
import json
import os
import pathlib
import subprocess
import time
import uuid

from emulator import until
from model import KEY, Model, write_workspace

EXPENSE = {"state": {"employee": "Ada", "amount_cents": 12000, "purpose": "a keyboard"}}
GRACE = {"decision": "approved", "decided_by": "Grace"}
BOB = {"decision": "rejected", "decided_by": "Bob"}
PAID = "EUR 120.00 paid to Ada, approved by Grace"


def same(given, expected, what):
    if given != expected:
        raise AssertionError(f"{what}: expected {expected!r}, not {given!r}")


def begin(stack, graph, turn):
    """Begins a turn that falls asleep, and makes sure that nothing runs afterwards."""
    headers = stack.bearer | {"idempotency-key": f"begin-{time.monotonic_ns()}"}
    for _ in range(4):
        answer = stack.door.post(f"/graphs/{graph}/turns", turn, headers=headers)
        # The emulator may give a request to a process that has just been killed: with a key it may be sent again.
        if answer.status != 502:
            break
    same((answer.status, answer.json.get("status")), (202, "suspended"), f"{graph}: {answer}")
    # Again, where a sweep falls due meanwhile: its process would stay.
    until(lambda: not stack.emulator.kill_functions(), 10, "no function runs")
    return answer.json


def completed(stack, pause, seconds):
    """The invocation of `pause`, once it is completed."""

    def state():
        found = stack.door.get(pause["status_url"])
        return found.json if found.status == 200 and found.json["status"] == "completed" else None

    return until(state, seconds, f"invocation {pause['invocation_id']} completes")


def publish(stack, source, detail_type, detail):
    entry = {"EventBusName": stack.bus, "Source": source, "DetailType": detail_type, "Detail": json.dumps(detail)}
    same(stack.events.put_events(Entries=[entry])["FailedEntryCount"], 0, "an event is published")


def wake(stack, event):
    """Calls the function `wakeup` and waits for its answer."""
    return ask_function(stack, stack.wakeup, event)


def sweep(stack):
    """Calls the function `sweep` and waits for its answer."""
    return ask_function(stack, stack.sweep, {"dormouse_sweep": "everything"})


def ask_function(stack, function, event):
    answer = stack.functions.invoke(FunctionName=function, Payload=json.dumps(event))
    return json.loads(answer["Payload"].read())


def schedules(stack):
    listed = stack.scheduler.list_schedules(GroupName=stack.name)["Schedules"]
    return {entry["Name"] for entry in listed if entry["Name"] != "dormouse-sweep"}


def locked_door(stack):
    """turns and chats need an API key, signals the signal key, callbacks their token"""
    hello = {"role": "user", "content": "hello"}
    same(stack.door.post("/graphs/expense-approval/turns", EXPENSE).status, 401, "a turn without a key")
    same(stack.door.post("/chat/chat/sessions/s/messages", hello).status, 401, "a message without a key")
    signals = {"authorization": f"Bearer {stack.signal_key}"}
    same(stack.door.post("/graphs/nothing/turns", EXPENSE, headers=signals).status, 401, "the key of signals")
    same(stack.door.post("/graphs/nothing/turns", EXPENSE, headers=stack.bearer).status, 404, "an unknown graph")
    same(stack.door.post("/signals/s", {}).status, 401, "a signal without the key")
    same(stack.door.post("/callback/i?token=AAAA", {}).status, 404, "a callback with a wrong token")


def callback_posted(stack):
    """HTTP turn -> asleep -> all processes killed -> callback posted -> completed; again -> repeated; otherwise -> 409"""
    pause = begin(stack, "expense-approval", EXPENSE)
    done = stack.door.post(pause["callback_url"], GRACE)
    same((done.status, done.json["repeated"]), (200, False), f"the callback: {done}")
    again = stack.door.post(pause["callback_url"], GRACE)
    same((again.status, again.json["repeated"]), (200, True), f"again: {again}")
    other = stack.door.post(pause["callback_url"], BOB)
    same(other.status, 409, f"another answer: {other}")
    same(completed(stack, pause, 5)["state"]["result"], PAID, "the expense")
    same(schedules(stack), set(), "the deadline's schedule is gone")


def signal_posted(stack):
    """HTTP turn -> asleep -> signal posted with the key -> completed"""
    pause = begin(stack, "expense-approval", EXPENSE)
    key = {"authorization": f"Bearer {stack.signal_key}"}
    done = stack.door.post(f"/signals/{pause['waiting_for']['signal_id']}", GRACE, headers=key)
    same(done.status, 200, f"the signal: {done}")
    same(completed(stack, pause, 5)["state"]["result"], PAID, "the expense")


def event_arrives(stack):
    """HTTP turn -> asleep, a rule is made -> event arrives five times -> completed once; a late event changes nothing"""
    pause = begin(stack, "export-job", {"state": {"dataset": "orders"}})
    job = pause["waiting_for"]["signal_id"]
    for _ in range(5):
        publish(stack, "exporter", "Export Finished", {"job_id": job, "status": "succeeded", "url": "s3://orders.csv"})
    done = completed(stack, pause, 30)
    same(done["state"]["result"], "orders is exported: s3://orders.csv", "the export")
    publish(stack, "exporter", "Export Finished", {"job_id": job, "status": "failed"})
    late = {"dormouse_wakeup": {"invocation_id": pause["invocation_id"], "generation": 1}}
    same(wake(stack, late)["status"], "stale", "a late wake-up")
    later = completed(stack, pause, 5)
    # Each look has an address of its own, which says until when it is good.
    for looked in (done, later):
        looked.pop("status_url")
    same(later, done, "the invocation after a late event and a late wake-up")


def event_of_our_own(stack):
    """HTTP turn -> asleep -> an event in Dormouse's own form arrives by the static rule -> completed"""
    pause = begin(stack, "expense-approval", EXPENSE)
    detail = {"signal_id": pause["waiting_for"]["signal_id"], "payload": GRACE}
    publish(stack, "dormouse", "Dormouse Signal", detail)
    same(completed(stack, pause, 30)["state"]["result"], PAID, "the expense")


def schedule_fires(stack):
    """HTTP turn -> asleep -> the schedule fires -> completed"""
    pause = begin(stack, "reminder", {"state": {"text": "tea", "after": "PT2S"}})
    done = completed(stack, pause, 60)
    same(bool(done["state"]["reminded_at"]), True, "it reminded")


def killed_in_the_midst(stack):
    """a function is killed between its claim and its commit -> another takes over, with the payload that came first"""
    pause = begin(stack, "expense-approval", EXPENSE)
    stack.gate.hold("TransactWriteItems")
    with concurrent.futures.ThreadPoolExecutor(1) as caller:
        first = caller.submit(stack.door.post, pause["callback_url"], GRACE)
        until(stack.gate.held.is_set, 30, "the function has claimed the pause and begins to commit")
        same(stack.emulator.kill_functions() > 0, True, "it was killed")
        stack.gate.drop()
        same(first.result().status >= 500, True, "who called is told that it failed")

    def again():
        answer = stack.door.post(pause["callback_url"], BOB)
        if answer.status == 503:
            same(bool(answer.headers["retry-after"]), True, "a busy answer says when to try again")
            return None
        return answer

    done = until(again, 60, "the claim of the dead ends and another takes over")
    same(done.status in (200, 409), True, f"another answer is told what was decided: {done}")
    same(completed(stack, pause, 5)["state"]["result"], PAID, "the payload that came first stands")


def schedule_early_and_doubled(stack):
    """a schedule fires an hour too early -> it sleeps on; another one fires five times at once -> it is woken once"""

    def asleep(after):
        pause = begin(stack, "reminder", {"state": {"text": "tea", "after": after}})
        (name,) = schedules(stack)
        target = stack.scheduler.get_schedule(GroupName=stack.name, Name=name)["Target"]
        return pause, json.loads(target["Input"])

    pause, call = asleep("PT1H")
    for _ in range(2):
        same(wake(stack, call)["status"], "suspended", "a wake-up an hour too early")
    same(stack.door.get(pause["status_url"]).json["status"], "suspended", "the invocation")
    same(len(schedules(stack)), 1, "its schedule stands")
    same(stack.door.post(pause["cancel_url"], {}).status, 200, "the cancellation")
    pause, call = asleep("PT5S")
    time.sleep(5)
    with concurrent.futures.ThreadPoolExecutor(5) as callers:
        answers = list(callers.map(lambda _: wake(stack, call), range(5)))
    done = completed(stack, pause, 60)
    same(bool(done["state"]["reminded_at"]), True, "it reminded")
    woken = [answer for answer in answers if answer.get("status") == "completed" and not answer["repeated"]]
    same(len(woken) <= 1, True, f"it is woken once: {answers}")
    same(wake(stack, call)["status"], "stale", "a wake-up behind its end")
    same(completed(stack, pause, 5)["state"], done["state"], "it is left as it was")


def table_away(stack):
    """the table is away for half a minute: who asks is told to come again, what falls due waits -> all of it goes on behind that"""
    answered = begin(stack, "expense-approval", EXPENSE)
    reminded = begin(stack, "reminder", {"state": {"text": "tea", "after": "PT5S"}})
    headers = stack.bearer | {"idempotency-key": str(uuid.uuid4())}

    def ask():
        approval = stack.door.post(answered["callback_url"], GRACE)
        return approval, stack.door.post("/graphs/expense-approval/turns", EXPENSE, headers=headers)

    def taken():
        answers = ask()
        return answers if all(answer.status < 500 for answer in answers) else None

    with stack.gate.table_away():
        back = time.monotonic() + 30
        while time.monotonic() < back:
            for refused in ask():
                told = refused.status, bool(refused.headers.get("retry-after"))
                same(told, (503, True), f"without a table: {refused}")
    approval, turn = until(taken, 90, "both are taken")
    same((approval.status, turn.status), (200, 202), f"{approval} {turn}")
    same(completed(stack, answered, 30)["state"]["result"], PAID, "the expense")
    # The emulator tries no wake-up again that failed; on AWS the schedule does, and the sweep here.
    until(lambda: sweep(stack)["status"] == "swept", 60, "a sweep")
    same(bool(completed(stack, reminded, 90)["state"]["reminded_at"]), True, "it reminded")


def several_signals(stack):
    """HTTP turn -> asleep -> two of three people answer at addresses of their own -> completed; one answers twice -> repeated"""
    turn = {"state": {"item": "a lathe", "amount_cents": 120000, "approvers": ["ada", "grace", "linus"]}}
    pause = begin(stack, "purchase", turn)
    addresses, yes = pause["callback_urls"], {"vote": "yes"}
    first = stack.door.post(addresses["ada"], yes)
    same((first.status, first.json["missing"]), (202, ["grace", "linus"]), f"the first vote: {first}")
    again = stack.door.post(addresses["ada"], yes)
    same((again.status, again.json["repeated"]), (202, True), f"the same vote again: {again}")
    other = stack.door.post(addresses["ada"], {"vote": "no"})
    same(other.status, 409, f"another vote of who has voted: {other}")
    stack.emulator.kill_functions()
    done = stack.door.post(addresses["linus"], yes)
    same(done.status, 200, f"the second vote: {done}")
    result = completed(stack, pause, 5)["state"]["result"]
    same(result, "a lathe bought for EUR 1200.00, approved by ada and linus", "the purchase")


def canceled(stack):
    """HTTP turn -> asleep -> canceled at its address -> neither its callback nor its schedule wakes it"""
    pause = begin(stack, "expense-approval", EXPENSE)
    done = stack.door.post(pause["cancel_url"], {})
    same(done.status, 200, f"the cancellation: {done}")
    late = stack.door.post(pause["callback_url"], GRACE)
    same(late.status in (409, 410), True, f"an answer to what was canceled: {late}")
    ended = stack.door.get(pause["status_url"])
    same((ended.json["status"], "invocation_canceled" in str(ended)), ("errored", True), f"the invocation: {ended}")
    same(schedules(stack), set(), "the deadline's schedule is gone")


def silence_decides(stack):
    """HTTP turn -> asleep -> nobody answers -> its deadline decides by default; a later answer -> 409"""
    pause = begin(stack, "expense-approval", {"state": EXPENSE["state"] | {"decide_within": "PT2S"}})
    done = completed(stack, pause, 60)
    same(done["state"]["decision"], "timed_out", "the decision")
    late = stack.door.post(pause["callback_url"], GRACE)
    same(late.status, 409, f"an answer after the deadline: {late}")


def keyed_repeats(stack):
    """a turn is sent twice with one key -> one invocation; with another body -> 409"""
    headers = stack.bearer | {"idempotency-key": str(uuid.uuid4())}
    first, again = (stack.door.post("/graphs/expense-approval/turns", EXPENSE, headers=headers) for _ in range(2))
    same((first.status, again.status), (202, 202), f"{first} {again}")
    same(again.json["invocation_id"], first.json["invocation_id"], "the invocation")
    same((first.json["repeated"], again.json["repeated"]), (False, True), "which is the repetition")
    other = {"state": EXPENSE["state"] | {"amount_cents": 13000}}
    other = stack.door.post("/graphs/expense-approval/turns", other, headers=headers)
    same(other.status, 409, f"another request with the key: {other}")
    same(stack.door.post(first.json["callback_url"], GRACE).status, 200, "it is answered once")


def throttled(stack):
    """DynamoDB refuses a while because it is asked too much -> the functions ask again, and nothing is lost"""
    stack.gate.throttle("TransactWriteItems", 2)
    pause = begin(stack, "expense-approval", EXPENSE)
    stack.gate.throttle("UpdateItem", 2)
    stack.gate.throttle("TransactWriteItems", 2)
    done = stack.door.post(pause["callback_url"], GRACE)
    same((done.status, done.json["repeated"]), (200, False), f"the callback: {done}")
    same(stack.gate.planned(), {}, "all of it was refused")
    same(completed(stack, pause, 5)["state"]["result"], PAID, "the expense")


def acknowledgements_lost(stack):
    """DynamoDB does what it is asked and its answer is lost -> the functions find that it was done, and do it once"""
    stack.gate.lose("TransactWriteItems", 1)
    pause = begin(stack, "expense-approval", EXPENSE)
    stack.gate.lose("UpdateItem", 1)
    stack.gate.lose("TransactWriteItems", 1)
    done = stack.door.post(pause["callback_url"], GRACE)
    same((done.status, done.json["repeated"]), (200, False), f"the callback: {done}")
    same(stack.gate.planned(), {}, "all of it was lost")
    same(completed(stack, pause, 5)["state"]["result"], PAID, "the expense")


def unknown_shapes(stack):
    """events of unknown shape end in the dead-letter queue, as they were sent; `dormouse letters` tells why, and drops them"""
    marker = str(uuid.uuid4())
    bus_event = {"source": "dormouse", "detail-type": "Dormouse Signal", "detail": {"signal_id": None}, "id": marker}
    sent = [(stack.signal, bus_event), (stack.signal, {"signal": marker}), (stack.wakeup, {"wakeup": marker})]
    for function, event in sent:
        stack.functions.invoke(FunctionName=function, InvocationType="Event", Payload=json.dumps(event))
    letters = until(lambda: dead_letters(stack, len(sent)), 60, "as many dead letters as events")
    order = sorted((letter["event"] for letter in letters), key=json.dumps)
    same(order, sorted((event for _, event in sent), key=json.dumps), "dead letters")
    told = {(letter["queue"], letter["error"], letter["attempts"]) for letter in letters}
    same(told, {("failed", "unreadable_event", 3)}, "why they are there")
    same(sorted(letter["function"] for letter in letters), ["signal", "signal", "wakeup"], "whom they were for")
    for letter in letters:
        stack.letters("--drop", letter["id"])
    same(stack.letters()["letters"], [], "what is left")


def dead_letters(stack, count):
    letters = stack.letters()["letters"]
    return letters if len(letters) >= count else None


def letters_handed_back(stack):
    """events that no rule could deliver lie in the dead-letter queue -> `dormouse letters --redrive` -> completed"""
    notes = {"ERROR_CODE": "NO_PERMISSIONS", "ERROR_MESSAGE": "not allowed", "RETRY_ATTEMPTS": "185"}
    notes = {name: {"DataType": "String", "StringValue": value} for name, value in notes.items()}

    def put_aside(source, detail_type, detail):
        event = {"version": "0", "id": str(uuid.uuid4()), "source": source, "detail-type": detail_type, "detail": detail}
        stack.queues.send_message(QueueUrl=stack.undelivered, MessageBody=json.dumps(event), MessageAttributes=notes)

    expense = begin(stack, "expense-approval", EXPENSE)
    put_aside("dormouse", "Dormouse Signal", {"signal_id": expense["waiting_for"]["signal_id"], "payload": GRACE})
    export = begin(stack, "export-job", {"state": {"dataset": "orders"}})
    finished = {"job_id": export["waiting_for"]["signal_id"], "status": "succeeded", "url": "s3://orders.csv"}
    put_aside("exporter", "Export Finished", finished)
    letters = {letter["function"]: letter for letter in stack.letters()["letters"]}
    same(set(letters), {"signal", None}, "one is for a function, and one for the bus")
    same("deploy again" in letters["signal"]["advice"], True, f"the advice: {letters['signal']}")
    handed_back = stack.letters("--redrive", letters["signal"]["id"][:8])
    same(handed_back, {"redriven": [letters["signal"]["id"]], "left": []}, "what is handed back")
    same(completed(stack, expense, 30)["state"]["result"], PAID, "the expense")
    same(stack.letters("--redrive", "--all")["redriven"], [letters[None]["id"]], "the rest")
    same(completed(stack, export, 30)["state"]["result"], "orders is exported: s3://orders.csv", "the export")
    same(stack.letters()["letters"], [], "what is left")


def events_streamed(stack):
    """a task is approved while the function `stream` tells of it at its own address: every event, in order"""
    version = {"harn-agents-protocol-version": "agents-protocol-2026-04-25"}
    speak = version | stack.bearer

    def ask(path, body):
        answer = stack.door.post(path, body, headers=speak | {"idempotency-key": str(uuid.uuid4())})
        same(answer.status in (200, 201, 202), True, f"{path}: {answer}")
        return answer.json

    workspace = ask("/v1/workspaces", {"name": "desk", "root": "/"})
    session = ask("/v1/sessions", {"workspace_id": workspace["id"]})
    work = {"persona_id": "persona_expense-approval", "input": EXPENSE["state"]}
    task = ask(f"/v1/sessions/{session['id']}/tasks", work)
    path = f"/v1/tasks/{task['id']}"
    until(lambda: stack.door.get(path, headers=speak).json["status"] == "AUTH_REQUIRED", 30, "the task waits")
    same(stack.streams.get(f"{path}/stream", headers=version).status, 401, "a stream without a key")
    same(stack.streams.post("/v1/workspaces", {"name": "w", "root": "/"}, headers=speak).status, 501, "a write")
    with concurrent.futures.ThreadPoolExecutor(1) as caller:
        streamed = caller.submit(stack.streams.get, f"{path}/stream", headers=speak)
        message = {"role": "user", "parts": [{"type": "json", "value": {"approved": True}}]}
        ask(f"{path}/messages", {"kind": "tool_confirmation", "message": message})
        answer = streamed.result()
    same((answer.status, answer.headers["content-type"]), (200, "text/event-stream"), f"the stream: {answer}")
    lines = answer.content.decode().splitlines()
    events = [json.loads(line.removeprefix("data:")) for line in lines if line.startswith("data:")]
    events = [event for event in events if event["resource"]["id"] == task["id"]]
    same([event["sequence"] for event in events], list(range(1, len(events) + 1)), "no gap and no repeat")
    same(events[-1]["event"], "task.completed", "the last event")


def secrets_replaced(stack):
    """secrets stand in no environment and no parameter of the stack; new ones lose no address; what is retired opens nothing"""
    pauses = [begin(stack, "expense-approval", EXPENSE) for _ in range(2)]
    names = ("callback-secret", "signal-key")
    before = [stack.secret(name) for name in names]
    told = json.dumps(
        [stack.stacks.describe_stacks(StackName=stack.name), stack.functions.list_functions()], default=str
    )
    same([secret for secret in before if secret in told], [], "secrets that whoever may look at the stack reads")
    stack.deploy()
    same([stack.secret(name) for name in names], before, "the secrets after another deployment")
    said = stack.deploy(ROTATE="callback-secret signal-key")
    after = [stack.secret(name) for name in names]
    same([old == new for old, new in zip(before, after)], [False, False], "both are new")
    same([secret for secret in before + after if secret in said], [], "secrets that the deployment tells")
    same([stack.secret(f"{name}-second") for name in names], before, "those before are accepted")
    try:
        stack.deploy(ROTATE="callback-secret")
    except AssertionError as refused:
        same("RETIRE=callback-secret" in str(refused), True, f"what makes room for another one is told: {refused}")
    else:
        raise AssertionError("a secret was replaced while the one before is accepted")
    pauses.append(begin(stack, "expense-approval", EXPENSE))
    for pause in pauses[1:]:
        done = stack.door.post(pause["callback_url"], GRACE)
        same(done.status, 200, f"an address given out before or after: {done}")

    def signal(key):
        return stack.door.post("/signals/nobody-waits", GRACE, headers={"authorization": f"Bearer {key}"}).status

    same([signal(before[1]), signal(after[1])], [202, 202], "both signal keys")
    stack.deploy(RETIRE="callback-secret signal-key")
    same([stack.secret(name) for name in names], after, "the secrets")
    same([signal(before[1]), signal(after[1])], [401, 202], "the old signal key, and the new one")
    retired = stack.door.post(pauses[0]["callback_url"], GRACE)
    same(retired.status, 404, f"an address of a secret that is retired: {retired}")
    path = f"/signals/{pauses[0]['waiting_for']['signal_id']}"
    done = stack.door.post(path, GRACE, headers={"authorization": f"Bearer {after[1]}"})
    same(done.status, 200, f"its sleeper hears of signals still: {done}")
    stack.signal_key = after[1]


def versions_taken_back(stack):
    """a deployment publishes versions and points the alias at them; one call takes an earlier one back"""

    def live():
        return stack.functions.get_alias(FunctionName=stack.signal, Name="live")["FunctionVersion"]

    before = live()
    stack.deploy(TURN_SECONDS="120")
    after = live()
    same(before != after, True, f"another version is live: {after}")
    turns = [
        stack.functions.get_function_configuration(FunctionName=stack.signal, Qualifier=version)["Environment"][
            "Variables"
        ]["DORMOUSE_TURN"]
        for version in (before, after)
    ]
    same(turns, ["150", "120"], "each version has its own environment")
    stack.functions.update_alias(FunctionName=stack.signal, Name="live", FunctionVersion=before)
    pause = begin(stack, "expense-approval", EXPENSE)
    same(stack.door.post(pause["callback_url"], GRACE).status, 200, "the earlier version answers")
    stack.deploy(TURN_SECONDS="150")
    same(live() not in (before, after), True, "the next deployment goes on")


def protected(stack):
    """PROTECTED=yes: the stack cannot be removed; PROTECTED=no: it can again"""
    stack.deploy(PROTECTED="yes")
    try:
        stack.destroy()
    except AssertionError as refused:
        same("PROTECTED=no" in str(refused), True, f"what helps is told: {refused}")
    else:
        raise AssertionError("a protected stack was removed")
    stack.deploy(PROTECTED="no")


def restored(stack):
    """the table of an earlier time is restored and adopted -> what slept then sleeps again, and what came later is unknown"""
    old_table = stack.table
    answered = begin(stack, "expense-approval", EXPENSE)
    fired = begin(stack, "reminder", {"state": {"text": "tea", "after": "PT1S"}})
    said = stack.restore("table", "latest")
    (restored_table,) = [line.split()[-1] for line in said.splitlines() if line.startswith("restored: ")]
    same(stack.door.post(answered["callback_url"], GRACE).status, 200, "it is answered after that time")
    completed(stack, fired, 60)
    later = begin(stack, "expense-approval", EXPENSE)
    refused = len(stack.gate.denied)
    stack.restore("adopt", restored_table)
    same(stack.table, restored_table, "the table of the stack")
    described = stack.tables.describe_table(TableName=restored_table)["Table"]
    expires = stack.tables.describe_time_to_live(TableName=restored_table)["TimeToLiveDescription"]
    same((described["DeletionProtectionEnabled"], expires.get("AttributeName")), (True, "ttl"), "its settings")
    again = stack.door.get(answered["status_url"])
    same((again.status, again.json["status"]), (200, "suspended"), f"what was answered sleeps again: {again}")
    done = stack.door.post(answered["callback_url"], BOB)
    same((done.status, done.json["repeated"]), (200, False), f"its old address takes another answer: {done}")
    unknown = stack.door.post(later["callback_url"], GRACE)
    same(unknown.status in (404, 410), True, f"what began later is not there: {unknown}")
    # Its schedule has fired and is gone: the sweep calls for a worker.
    until(lambda: sweep(stack)["status"] == "swept", 30, "a sweep")
    completed(stack, fired, 60)
    # The sweep comes by schedule. Its version before may come once more, and its role reaches the table of before no more.
    stack.gate.denied[refused:] = [one for one in stack.gate.denied[refused:] if "SweepRole" not in one]
    stack.tables.update_table(TableName=old_table, DeletionProtectionEnabled=False)
    stack.tables.delete_table(TableName=old_table)


def secrets_in_a_vault(stack):
    """SECRET_STORE=secrets-manager: another stack has its secrets there; new ones lose no address; all of it is removed"""
    other = stack.beside("vault", SECRET_STORE="secrets-manager", TAGS="team=agents")
    tags = {tag["Key"]: tag["Value"] for tag in other.stacks.describe_stacks(StackName=other.name)["Stacks"][0]["Tags"]}
    same(tags, {"team": "agents", "dormouse-stage": "vault"}, "its tags")
    found = other.parameters.get_parameters(Names=[f"{other.secrets}/signal-key"], WithDecryption=True)
    same(found["Parameters"], [], "parameters")
    before = [begin(other, "expense-approval", EXPENSE) for _ in range(2)]
    same(other.door.post(before[0]["callback_url"], GRACE).status, 200, "an address")
    other.deploy(ROTATE="callback-secret")
    same(other.door.post(before[1]["callback_url"], GRACE).status, 200, "an address of the secret before")
    after = begin(other, "expense-approval", EXPENSE)
    same(other.door.post(after["callback_url"], GRACE).status, 200, "an address of the new one")
    other.destroy()
    left = other.vault.list_secrets(Filters=[{"Key": "name", "Values": ["dormouse/vault"]}])["SecretList"]
    same(left, [], "secrets that are left")


def secrets_taken_over(stack):
    """a stack of an earlier version has its secrets in its environment -> they become parameters, and addresses stay valid"""
    pause = begin(stack, "expense-approval", EXPENSE)
    old = {"DORMOUSE_CALLBACK_SECRET": stack.secret("callback-secret"), "DORMOUSE_SIGNAL_KEY": stack.secret("signal-key")}
    names = [f"{stack.secrets}/{name}" for name in ("callback-secret", "signal-key")]
    stack.parameters.delete_parameters(Names=names)
    try:
        stack.deploy()
    except AssertionError as refused:
        same("give it again" in str(refused), True, f"secrets that are gone are not made up: {refused}")
    else:
        raise AssertionError("secrets that are gone were made up")
    now = stack.functions.get_function_configuration(FunctionName=stack.signal)["Environment"]["Variables"]
    stack.functions.update_function_configuration(FunctionName=stack.signal, Environment={"Variables": now | old})
    stack.deploy()
    same([stack.secret("callback-secret"), stack.secret("signal-key")], list(old.values()), "the secrets")
    same(stack.door.post(pause["callback_url"], GRACE).status, 200, "an address that was given out before")


def sweep_repairs(stack):
    """a schedule is lost -> the sweep registers it again"""
    # What a step before left: a restored table knows nothing of what came later, whose schedule stands till it fires.
    others = schedules(stack)
    pause = begin(stack, "reminder", {"state": {"text": "tea", "after": "PT1H"}})
    (lost,) = schedules(stack) - others
    stack.scheduler.delete_schedule(GroupName=stack.name, Name=lost)
    # A sweep goes on where one before it was killed, and may be through at once; the next one begins at the beginning.
    swept = [sweep(stack) for _ in range(2)]
    same([(one["status"], one["failed"]) for one in swept], [("swept", 0)] * 2, f"the sweeps: {swept}")
    same(any(one["registered"] for one in swept), True, f"one of the sweeps registers: {swept}")
    same(lost in schedules(stack), True, "the schedule is back")
    aimed = stack.scheduler.get_schedule(GroupName=stack.name, Name="dormouse-sweep")["Target"]["Arn"]
    same(aimed.endswith(f":function:{stack.sweep}:live"), True, f"what the schedule of sweeps calls: {aimed}")
    same(stack.door.post(pause["callback_url"], {}).status, 200, "the reminder ends early")


def hundred_sessions(stack):
    """100 sessions at once: each asks, sleeps, is woken and answers; none hears of another"""

    def session(number):
        ask = {"role": "user", "content": f"please get an approval for {number}"}
        path = f"/chat/chat/sessions/session-{number}/messages"
        headers = stack.bearer | {"idempotency-key": str(uuid.uuid4())}
        asleep = patiently(lambda: stack.door.post(path, ask, headers=headers))
        same(asleep.status, 202, f"session {number} falls asleep: {asleep}")
        done = patiently(lambda: stack.door.post(asleep.json["callback_url"], {"allowed": True}))
        same(done.status, 200, f"session {number} wakes up: {done}")
        same(done.json.get("session_id"), f"session-{number}", f"the session that wakes up: {done}")
        seen = patiently(lambda: stack.door.get(asleep.json["status_url"]))
        said = [message["content"] for message in seen.json["state"]["messages"]]
        same((len(said), said[0], f"for {number}\"" in said[-1]), (3, ask["content"], True), f"session {number}: {said}")

    with concurrent.futures.ThreadPoolExecutor(100) as callers:
        for ended in [callers.submit(session, number) for number in range(100)]:
            ended.result()


def patiently(call):
    """What a caller does who is told to try again, or is not told what became of the request."""
    last = None

    def attempt():
        nonlocal last
        last = call()
        return None if last.status in (429, 502, 503, 504) else last

    return until(attempt, 180, lambda: f"an answer that stands; the last one: {last}")


def signed_callers(stack):
    """AUTHORIZATION=AWS_IAM: sessions belong to a user, and to a role whatever its session is called; keys open nothing"""
    stack.deploy(AUTHORIZATION="AWS_IAM")
    stack.role("worker")
    callers = {
        "ada": stack.user("ada"),
        "grace": stack.user("grace"),
        "worker/task-1": stack.take("worker", "task-1"),
        "worker/task-2": stack.take("worker", "task-2"),
    }
    path = "/chat/chat/sessions/shared-name/messages"
    for headers in ({}, stack.bearer):
        refused = stack.door.post(path, {"role": "user", "content": "hello"}, headers=headers)
        same(refused.status in (401, 403), True, f"without a signature: {refused}")

    def messages(name):
        answer = stack.signed(path, {"role": "user", "content": f"hello, I am {name}"}, callers[name])
        same(answer.status, 200, f"{name}: {answer}")
        said = answer.json["final_state"]["messages"]
        return [message["content"] for message in said if message["role"] == "user"]

    hello = {name: f"hello, I am {name}" for name in callers}
    same(messages("ada"), [hello["ada"]], "a user begins")
    same(messages("grace"), [hello["grace"]], "another user does not hear of it")
    same(messages("worker/task-1"), [hello["worker/task-1"]], "nor does a role")
    same(messages("worker/task-2"), [hello["worker/task-1"], hello["worker/task-2"]], "a role goes on in another session")
    same(messages("ada"), [hello["ada"], hello["ada"]], "the first user goes on")
    stack.deploy(AUTHORIZATION="KEYS")


def published_agent(stack):
    """a workspace is published; model and tool are called once each, the approval wakes another sandbox, a run keeps its bundle"""
    stack.deploy(WORKSPACES="front-desk")
    name = f"{stack.secrets}/agents/MODEL_KEY"
    stack.parameters.put_parameter(Name=name, Value=KEY, Type="SecureString")
    model, folder = Model(), pathlib.Path(stack.emulator.folder) / "front-desk"
    try:
        agent_works(stack, model, folder)
    finally:
        model.stop()
    stack.parameters.delete_parameters(Names=[name])


def agent_works(stack, model, folder):
    write_workspace(folder, model, "Rules of the first day.")
    looked = stack.publish(folder, "front-desk", "--dry-run")
    same((looked["published"], len(looked["changes"])), (False, 4), f"a look: {looked}")
    first = stack.publish(folder, "front-desk")
    same((first["published"], first["bundle"]), (True, looked["bundle"]), f"the publication: {first}")
    same(stack.publish(folder, "front-desk")["published"], False, "the same again")
    headers = {"harn-agents-protocol-version": "agents-protocol-2026-04-25"} | stack.bearer

    def ask(path, body):
        keyed = headers | {"idempotency-key": str(uuid.uuid4())}
        answer = patiently(lambda: stack.door.post(path, body, headers=keyed))
        same(answer.status in (200, 201, 202), True, f"{path}: {answer}")
        return answer.json

    def task_is(task, status):
        found = stack.door.get(f"/v1/tasks/{task['id']}", headers=headers)
        same(found.json.get("status") in ("FAILED", "CANCELED"), False, f"the task: {found}")
        return found.json if found.json.get("status") == status else None

    personas = [one["name"] for one in stack.door.get("/v1/personas", headers=headers).json["data"]]
    same(personas[0], "clerk", f"the agents: {personas}")
    workspace = ask("/v1/workspaces", {"name": "desk", "root": "/"})
    session = ask("/v1/sessions", {"workspace_id": workspace["id"]})

    def submit():
        said = {"role": "user", "parts": [{"type": "text", "text": "Book the blue room for nine."}]}
        return ask(f"/v1/sessions/{session['id']}/tasks", {"persona_id": "persona_clerk", "input": said})

    def approve(task):
        said = {"role": "user", "parts": [{"type": "json", "value": {"approved": True}}]}
        ask(f"/v1/tasks/{task['id']}/messages", {"kind": "tool_confirmation", "message": said})

    task = submit()
    until(lambda: task_is(task, "AUTH_REQUIRED"), 60, "the model calls the tool, and the run waits for the approval")
    same((len(model.calls), model.bookings), (1, []), "calls of the model, and bookings before anybody approved")
    same(stack.emulator.kill_functions() > 0, True, "every sandbox is gone")
    until(lambda: not stack.emulator.functions(), 10, "no function runs")
    # What was published meanwhile counts for the next run, and not for the one that sleeps.
    (folder / "AGENTS.md").write_text("Rules of the second day.\n")
    second = stack.publish(folder, "front-desk")
    same(second["changes"], [{"change": "changed", "path": "AGENTS.md"}], f"the second publication: {second}")
    approve(task)
    until(lambda: task_is(task, "COMPLETED"), 60, "the approval wakes another sandbox, which completes the run")
    same(len(model.calls), 2, "calls of the model")
    same([body for _, body in model.bookings], [{"room": "blue", "hour": 9}], "bookings")
    same(bool(model.bookings[0][0]), True, "a booking has an idempotency key")
    told = model.instructions()
    same(["first day" in said for said in told], [True, True], f"the run keeps its bundle: {told}")
    stack.emulator.kill_functions()
    later = submit()
    until(lambda: task_is(later, "COMPLETED") or task_is(later, "AUTH_REQUIRED"), 60, "a new run")
    same("second day" in model.instructions()[2], True, f"a new run begins with the new bundle: {model.instructions()}")
    same(model.refused, [], "requests without the key")
    own_agent_works(stack, model, ask, task_is)
    (folder / ".openharness/agents/clerk.md").write_text("---\nmodel: workspace/nothing\n---\n")
    same(stack.publish(folder, "front-desk"), 3, "a workspace that is wrong")


def own_agent_works(stack, model, ask, task_is):
    """An agent that the files of a workspace declare, which is made over the protocol, writes one of them when that is approved."""
    agent = (
        "---\nmodel: workspace/tour\ntools: {native: [Write]}\npolicy: {approval: {native: [Write]}}\n---\nYou write minutes.\n"
    )
    workspace = ask("/v1/workspaces", {"name": "own", "root": "/", "files": {".openharness/agents/mine.md": agent}})
    session = ask("/v1/sessions", {"workspace_id": workspace["id"]})
    said = {"role": "user", "parts": [{"type": "text", "text": "Write the minutes."}]}
    task = ask(f"/v1/sessions/{session['id']}/tasks", {"persona_id": "persona_mine", "input": said})
    until(lambda: task_is(task, "AUTH_REQUIRED"), 60, "the agent of the workspace waits for the approval")
    same(stack.emulator.kill_functions() > 0, True, "every sandbox is gone")
    said = {"role": "user", "parts": [{"type": "json", "value": {"approved": True}}]}
    ask(f"/v1/tasks/{task['id']}/messages", {"kind": "tool_confirmation", "message": said})
    until(lambda: task_is(task, "COMPLETED"), 60, "another sandbox finds the agent in the table and completes the run")
    headers = {"harn-agents-protocol-version": "agents-protocol-2026-04-25"} | stack.bearer
    file = stack.door.get(f"/v1/workspaces/{workspace['id']}/files?path=minutes.txt", headers=headers)
    same(file.json.get("content"), "We met.", f"the file that it wrote: {file}")


def tools_of_a_published_agent(stack):
    """commands and files of a published workspace work in a function of their own, and find no secret there"""
    stack.deploy(WORKSPACES="front-desk,back-office")
    bucket = stack.bucket_of_workspaces()
    for name in ("front-desk", "back-office"):
        stack.buckets.put_object(Bucket=bucket, Key=f"workspaces/{name}/bundles/aa.json", Body=b'{"format":1,"files":[]}')

    def call(workspace, **operation):
        def address(method, what):
            params = {"Bucket": bucket, "Key": f"workspaces/{workspace}/{what}"}
            return stack.buckets.generate_presigned_url(method, Params=params, ExpiresIn=600)

        event = {
            "definitions": address("get_object", "bundles/aa.json"),
            "files": address("get_object", "files/current"),
            "written": address("put_object", "files/current"),
            "operation": operation,
        }
        answer = stack.functions.invoke(FunctionName=f"{stack.name}-tools", Payload=json.dumps(event))
        return json.loads(answer["Payload"].read())

    def run(workspace, command):
        limits = {"time": {"secs": 20, "nanos": 0}, "kept_output": 65536, "most_output": 1 << 20, "memory": 1 << 30, "processes": 64}
        asked = {"command": command, "folder": "", "environment": {}, "input": "", "limits": limits}
        ran = call(workspace, run=asked)
        same("ran" in ran, True, f"{command}: {ran}")
        return ran["ran"]["stdout"]["text"]

    same(run("front-desk", "echo one > notes; cat notes"), "one\n", "a command")
    same(run("front-desk", "cat notes"), "one\n", "its file is there for the next call")
    same(run("back-office", "ls -A"), "", "and not in another workspace")
    same(call("front-desk", read={"path": "../x", "limit": 9})["failed"]["error"], "confined", "a path that leads out")
    found = run("front-desk", "env; cat /proc/$PPID/environ | tr '\\0' '\\n'")
    same([line for line in found.splitlines() if "SECRET" in line or "TOKEN" in line], [], "secrets in its environment")


def receipts_issued(stack):
    """answers and ends leave receipts, which prove themselves without the server; their keys stay through a deployment"""
    said = stack.deploy(RECEIPTS="enabled")
    same("making the secret" in said and stack.secret("receipt-keys") not in said, True, "the keys are made, and not told")
    headers = {"harn-agents-protocol-version": "agents-protocol-2026-04-25"} | stack.bearer

    def get(path):
        answer = patiently(lambda: stack.door.get(path, headers=headers))
        same(answer.status, 200, f"{path}: {answer}")
        return answer.json

    def ask(path, body):
        keyed = headers | {"idempotency-key": str(uuid.uuid4())}
        answer = patiently(lambda: stack.door.post(path, body, headers=keyed))
        same(answer.status in (200, 201, 202), True, f"{path}: {answer}")
        return answer.json

    def task_is(status):
        found = get(f"/v1/tasks/{task['id']}")
        return found if found["status"] == status else None

    keys = get("/v1/keys")
    same((len(keys["data"]), get("/v1")["capabilities"]["receipts"]), (1, True), f"the keys: {keys}")
    workspace = ask("/v1/workspaces", {"name": "desk", "root": "/"})
    session = ask("/v1/sessions", {"workspace_id": workspace["id"]})
    task = ask(f"/v1/sessions/{session['id']}/tasks", {"persona_id": "persona_expense-approval", "input": EXPENSE["state"]})
    until(lambda: task_is("AUTH_REQUIRED"), 60, "the task waits for an approval")
    stack.emulator.kill_functions()
    approved = {"role": "user", "parts": [{"type": "json", "value": {"approved": True}}]}
    ask(f"/v1/tasks/{task['id']}/messages", {"kind": "tool_confirmation", "message": approved})
    ended = until(lambda: task_is("COMPLETED"), 60, "the task ends")
    stack.deploy()
    same(get("/v1/keys"), keys, "the keys after another deployment")
    events = get(f"/v1/sessions/{session['id']}/events?limit=200")["data"]
    receipts = [one["payload"]["receipt"] for one in events if one["event"] == "receipt.issued"]
    same([one["subject"]["object"] for one in receipts], ["approval", "task"], "the receipts")
    same(receipts[1]["receipt_id"], ended["receipt_id"], "the receipt of the end")
    folder = pathlib.Path(stack.emulator.folder) / "receipts"
    folder.mkdir()
    (folder / "keys.txt").write_text(json.dumps(keys))
    (folder / "receipts.jsonl").write_text("\n".join(json.dumps(one) for one in receipts))
    verify = [os.environ["DORMOUSE_BIN"], "receipts", "verify", str(folder), "--anchor", str(folder / "keys.txt")]
    done = subprocess.run(verify, capture_output=True, text=True)
    same(done.returncode, 0, f"{done.stdout}{done.stderr}")
    replay = ask(f"/v1/tasks/{task['id']}/replay", {})
    same(replay["status"], "COMPLETED", f"the replay: {replay}")


def told_elsewhere(stack):
    """WEBHOOKS=enabled: a client of A2A is asked, and a webhook that cannot be reached is tried again by the scheduler"""
    stack.deploy(WEBHOOKS="enabled")
    stack.emulator.kill_functions()
    version = {"harn-agents-protocol-version": "agents-protocol-2026-04-25"} | stack.bearer

    def ask(path, body):
        headers = version | {"idempotency-key": str(uuid.uuid4())}
        answer = patiently(lambda: stack.door.post(path, body, headers=headers))
        same(answer.status in (200, 201), True, f"{path}: {answer}")
        return answer.json

    def rpc(method, params):
        return ask("/a2a", {"jsonrpc": "2.0", "id": 1, "method": method, "params": params})

    def retries():
        woken = stack.scheduler.exceptions.ResourceNotFoundException
        found = set()
        for name in schedules(stack):
            try:
                target = stack.scheduler.get_schedule(GroupName=stack.name, Name=name)["Target"]
            except woken:
                continue
            if "delivery_" in target["Input"]:
                found.add(name)
        return found

    card = patiently(lambda: stack.door.get("/.well-known/agent-card.json")).json
    same(card["capabilities"] | {"streaming": False, "pushNotifications": True}, card["capabilities"], "the card")
    workspace = ask("/v1/workspaces", {"name": "desk", "root": "/"})
    session = ask("/v1/sessions", {"workspace_id": workspace["id"]})
    # Nobody answers there, and functions do not go to addresses of their own network.
    hook = {"url": "https://127.0.0.1:9/hook", "events": ["task.auth_required"]}
    ask(f"/v1/sessions/{session['id']}/webhooks", hook)
    said = {"kind": "message", "messageId": str(uuid.uuid4()), "role": "user", "contextId": session["id"]}
    said["parts"] = [{"kind": "data", "data": EXPENSE["state"]}]
    sent = rpc("message/send", {"message": said, "metadata": {"persona_id": "persona_expense-approval"}})
    task = sent["result"]
    same(task["status"]["state"], "auth-required", f"the answer: {sent}")
    retry = until(retries, 60, "the delivery sleeps")
    until(lambda: not retries() & retry, 60, "the scheduler wakes it")
    approved = said | {"messageId": str(uuid.uuid4()), "taskId": task["id"]}
    approved["parts"] = [{"kind": "data", "data": {"approved": True}}]
    ended = rpc("message/send", {"message": approved})
    same(ended["result"]["status"]["state"], "completed", f"the answer: {ended}")
    refused = rpc("message/stream", {"message": said})
    same(refused["error"]["code"], -32004, f"a stream: {refused}")
    stack.deploy(WEBHOOKS="disabled")


def channels_of_notifications(stack):
    """the channels of notifications are a secret of wakeup, which runs with them; the deployment tells of some that it cannot use"""
    file = pathlib.Path(stack.emulator.folder) / "channels.json"
    file.write_text('{"ops": {"planted": "nowhere"}}')
    said = stack.deploy(goes=False, NOTIFICATIONS="enabled", NOTIFICATIONS_FILE=str(file), LOOK_EVERY="0")
    same((f"no answer of {stack.wakeup}." in said, "planted" in said), (True, False), f"what is told:\n{said}")
    file.write_text('{\n  "ops": {"slack": "https://hooks.slack.com/services/T0/B0/planted"}\n}\n')
    said = stack.deploy(NOTIFICATIONS="enabled", NOTIFICATIONS_FILE=str(file))
    same("planted" in said, False, "the channels are not told")
    same("planted" in stack.secret("notifications"), True, "the secret")
    told = stack.functions.get_function_configuration(FunctionName=stack.wakeup)["Environment"]["Variables"]
    same(told["DORMOUSE_NOTIFICATIONS"], f"{stack.secrets}/notifications", "what wakeup is told")
    stack.emulator.kill_functions()
    nobody = {"dormouse_wakeup": {"invocation_id": "nobody", "generation": 1}}
    same(wake(stack, nobody)["status"], "stale", "a wake-up with them")
    stack.deploy(NOTIFICATIONS="disabled")
    stack.parameters.delete_parameters(Names=[f"{stack.secrets}/notifications"])


def nothing_was_denied(stack):
    """no function asked for anything that its role does not grant"""
    same(stack.gate.denied, [], "denied requests")


STEPS = [
    locked_door,
    callback_posted,
    signal_posted,
    event_arrives,
    event_of_our_own,
    schedule_fires,
    schedule_early_and_doubled,
    several_signals,
    canceled,
    silence_decides,
    keyed_repeats,
    throttled,
    acknowledgements_lost,
    table_away,
    killed_in_the_midst,
    unknown_shapes,
    letters_handed_back,
    events_streamed,
    secrets_replaced,
    secrets_in_a_vault,
    secrets_taken_over,
    versions_taken_back,
    restored,
    protected,
    sweep_repairs,
    hundred_sessions,
    signed_callers,
    published_agent,
    tools_of_a_published_agent,
    receipts_issued,
    told_elsewhere,
    channels_of_notifications,
    nothing_was_denied,
]
