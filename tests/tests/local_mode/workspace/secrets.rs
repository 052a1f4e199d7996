use serde_json::json;

use super::DONE;
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
    let dormouse = project.serve_with(&[("SESAME", SECRET)]);
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
