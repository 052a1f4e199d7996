use serde_json::json;

use super::{DONE, WORKER};
use crate::assistant::world::Wire;
use crate::workspace::world::Project;

const SECRET: &str = "open sesame & hush";
const TELLS: (&str, &str) = (
    ".openharness/actions/tells/ACTION.yaml",
    "name: tells\ndescription: Tells what it was given.\nentry:\n  command: 'echo \"[$S]\"; env | grep CALLBACK; echo \"$S\" >&2; exit 3'\n  \
     environment: {S: '${secrets.SESAME}'}\ninput_schema: {type: object}\n",
);

#[tokio::test(flavor = "multi_thread")]
async fn what_an_action_tells_of_its_secrets_reaches_neither_the_model_nor_the_record() {
    let project = Project::of(&[TELLS]).await;
    let dormouse = project.serve_in(&[("SESAME", SECRET)]);
    let wire = Wire::of(&dormouse);
    let task = project.say(&dormouse, &[("tells", json!({}))]);
    let session = wire.task(&task, &DONE).await.session_id.to_string();
    let told = project.results().remove(0);
    assert!(told.contains("[[secret]]") && told.contains("?token=[secret]"), "only the secrets are taken out: {told}");
    let shown = format!(
        "{}{}{}",
        project.model.requests().pop().expect("a request"),
        json!(wire.events(&task).await),
        wire.get(&format!("/v1/sessions/{session}/messages")).await,
    );
    assert!(!shown.contains("sesame"), "{shown}");
    assert!(shown.contains("CALLBACK_URL=http"), "what is no secret is shown: {shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_sees_nothing_of_the_data_of_runs_wherever_it_moves_it() {
    // A mirror would make a new folder in the place of the one that was moved.
    let settings = (".openharness/settings.yaml", "history_mirror_enabled: false\n");
    let project = Project::of(&[WORKER, settings, (".openharness/data/runs/one", "kept for runs")]).await;
    let dormouse = project.serve();
    if !project.confines(&dormouse).await {
        return;
    }
    let wire = Wire::of(&dormouse);
    let data = dormouse.data().display().to_string();
    let key = dormouse.api_key();
    let look = format!(
        "ls {data} | wc -l; cat {data}/api-key .openharness/data/runs/one; umount {data} .openharness/data; \
         unshare --mount umount {data}; unshare --user --map-root-user --mount umount {data}; cat {data}/api-key; \
         mv .openharness moved; mv {data} {data}2; echo looked"
    );
    let again = format!("cat moved/data/runs/one {data}/api-key {data}2/api-key; mv moved .openharness; echo again");
    let calls = [("Bash", json!({ "command": look })), ("Bash", json!({ "command": again }))];
    let task = project.say(&dormouse, &calls);
    wire.task(&task, &DONE).await;
    let told = project.results();
    assert!(told[0].starts_with('0') && told[0].contains("looked") && told[1].contains("again"), "{told:?}");
    for kept in [key.as_str(), "kept for runs"] {
        assert!(!told.iter().any(|told| told.contains(kept)), "{told:?}");
    }
    assert_eq!(project.read(".openharness/data/runs/one"), "kept for runs");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_changes_nothing_of_the_kernel_also_as_root() {
    let project = Project::of(&[WORKER]).await;
    let dormouse = project.serve();
    if !project.confines(&dormouse).await {
        return;
    }
    let wire = Wire::of(&dormouse);
    let setting = "/proc/sys/vm/swappiness";
    let look = format!(
        "cat {setting} > {setting} && echo written; mount -o remount,rw /proc/sys && echo remounted; \
         umount /proc/sys && echo bared; mkdir /sys/fs/cgroup/of-a-command && echo grouped; cat {setting}; echo looked"
    );
    wire.task(&project.say(&dormouse, &[("Bash", json!({ "command": look }))]), &DONE).await;
    let told = project.results().remove(0);
    let is_read = told.lines().any(|line| line.trim().parse::<u8>().is_ok());
    assert!(is_read && told.contains("looked"), "{told}");
    for done in ["written", "remounted", "bared", "grouped"] {
        assert!(!told.lines().any(|line| line.trim() == done), "{told}");
    }
}
