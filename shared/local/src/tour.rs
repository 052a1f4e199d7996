//! Greeting that is printed when everything runs: a tour whose indented lines can be pasted into a shell as they are.

use dormouse_http::Authorization;

/// Details of the process that prints the tour.
pub(crate) struct Tour<'a> {
    /// Address at which it answers.
    pub(crate) address: &'a str,
    /// The key of the operator.
    pub(crate) key: &'a str,
    /// The key that may do everything.
    pub(crate) api_key: &'a str,
    /// Proof of identity that callers have to give.
    pub(crate) authorization: Authorization,
}

impl Tour<'_> {
    /// The tour. Commands are indented by four spaces; nothing else is. They need `curl`, `grep` and `cut` only, and
    /// the same lines work again after a restart.
    pub(crate) fn text(&self) -> String {
        let proof = match self.authorization {
            Authorization::Keys => r#" -H "$AS""#,
            Authorization::AwsIam | Authorization::None => "",
        };
        TOUR.replace("{address}", self.address)
            .replace("{key}", self.key)
            .replace("{api_key}", self.api_key)
            .replace("{proof}", proof)
    }
}

const TOUR: &str = r#"
A guided tour. Paste the indented lines into a second terminal.

0. Once for each terminal: where it runs, the key of the operator, an API key, and a way to read a field of an answer.

    DORMOUSE={address}
    KEY={key}
    AS='authorization: Bearer {api_key}'
    JSON='content-type: application/json'
    field() { printf '%s' "$2" | grep -o "\"$1\":\"[^\"]*\"" | head -n 1 | cut -d '"' -f 4; }

1. An expense waits for a person. It is asleep: nothing runs, everything is on the disk.

    A=$(curl -s "$DORMOUSE/graphs/expense-approval/turns" -H "$JSON"{proof} -d '{"state":{"employee":"Ada","amount_cents":12000,"purpose":"a keyboard"}}'); echo "$A"
    CALLBACK=$(field callback_url "$A"); STATUS=$(field status_url "$A")
    curl -s -w '\n' "$STATUS"

   Now stop this process (Ctrl-C, or harder: kill -9) and start it again the same way. Then approve, and approve again:
   the second approval changes nothing and gets the same answer, marked as repeated.

    curl -s -w '\n' "$CALLBACK" -H "$JSON" -d '{"decision":"approved","decided_by":"Grace"}'
    curl -s -w '\n' "$CALLBACK" -H "$JSON" -d '{"decision":"approved","decided_by":"Grace"}'
    curl -s -w '\n' "$STATUS"

2. A reminder waits for a time.

    B=$(curl -s "$DORMOUSE/graphs/reminder/turns" -H "$JSON"{proof} -d '{"state":{"text":"stretch your legs","after":"PT20S"}}'); echo "$B"
    sleep 22; curl -s -w '\n' "$(field status_url "$B")"

3. An export waits for a job. The event that dispatched it is first in the list; publish the one that says it is done.

    C=$(curl -s "$DORMOUSE/graphs/export-job/turns" -H "$JSON"{proof} -d '{"state":{"dataset":"orders"}}'); echo "$C"
    JOB=$(field job_id "$C")
    curl -s -w '\n' "$DORMOUSE/_local/events" -H "authorization: Bearer $KEY"
    curl -s -w '\n' "$DORMOUSE/_local/events" -H "authorization: Bearer $KEY" -H "$JSON" -d '{"source":"exporter","detail-type":"Export Finished","detail":{"job_id":"'"$JOB"'","status":"succeeded","url":"https://example.com/orders.csv"}}'
    sleep 1; curl -s -w '\n' "$(field status_url "$C")"

4. A chat: one message, one reply. The model is an offline script and says so.

    curl -s -w '\n' "$DORMOUSE/chat/chat/sessions/tour/messages" -H "$JSON"{proof} -d '{"role":"user","content":"Hello, who are you?"}'

5. A purchase waits for two of three people, each with an address of their own. The first yes is accepted, the second one
   decides; a single no would have, too.

    D=$(curl -s "$DORMOUSE/graphs/purchase/turns" -H "$JSON"{proof} -d '{"state":{"item":"a lathe","amount_cents":120000}}'); echo "$D"
    curl -s -w '\n' "$(field ada "$D")" -H "$JSON" -d '{"vote":"yes"}'
    curl -s -w '\n' "$(field linus "$D")" -H "$JSON" -d '{"vote":"yes","remark":"at last"}'
    curl -s -w '\n' "$(field status_url "$D")"

6. The same through the public protocol, as any Harn client does it: a session, a task in it, its events as they come, an
   answer. The stream would stay open; curl is told to leave after two seconds.

    api() { curl -s -w '\n' "$DORMOUSE$1" -H "$AS" -H 'harn-agents-protocol-version: agents-protocol-2026-04-25' -H "$JSON" -N -m "${3:-60}" ${2:+-d "$2"}; }
    W=$(field id "$(api /v1/workspaces '{"name":"tour","root":"/"}')"); S=$(field id "$(api /v1/sessions '{"workspace_id":"'"$W"'"}')")
    T=$(field id "$(api "/v1/sessions/$S/tasks" '{"persona_id":"persona_expense-approval","input":{"employee":"Ada","amount_cents":9900,"purpose":"a lamp"}}')")
    api "/v1/tasks/$T/stream" '' 2
    api "/v1/tasks/$T/messages" '{"kind":"tool_confirmation","message":{"role":"user","parts":[{"type":"text","text":"yes"}]}}'
    sleep 1; api "/v1/tasks/$T"

All routes: curl -s {address}/ (Ctrl-C ends this process after the running turns.)

"#;

#[cfg(test)]
mod tests {
    use super::*;

    fn of(authorization: Authorization) -> Tour<'static> {
        Tour { address: "http://127.0.0.1:1", key: "hush", api_key: "dm_1", authorization }
    }

    #[test]
    fn address_and_keys_are_filled_in() {
        let text = of(Authorization::None).text();
        assert!(text.contains("    DORMOUSE=http://127.0.0.1:1\n    KEY=hush\n"));
        for name in ["{address}", "{key}", "{api_key}", "{proof}"] {
            assert!(!text.contains(name), "{name}");
        }
        assert!(text.contains("Bearer dm_1'"));
    }

    #[test]
    fn a_key_is_sent_where_one_is_asked_for() {
        let proofs = |authorization| of(authorization).text().matches(r#"-H "$JSON" -H "$AS""#).count();
        assert_eq!((proofs(Authorization::None), proofs(Authorization::Keys)), (0, 5));
    }
}
