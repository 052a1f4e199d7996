//! Push notifications of A2A: webhooks of the session of a task, which tell of that task alone.

use serde::Deserialize;
use serde_json::{Value, json};

use super::asked::{Ask, read, refused, task_error};
use super::{Caller, PARAMS, Protocol, RpcError, known_task};
use crate::protocol::admit::check_scope;
use dormouse_protocol::id::{TaskId, WebhookId};
use dormouse_protocol::resource::{CreateWebhookRequest, WebhookFormat};
use dormouse_protocol::{Identifier, Operation};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SetParams {
    task_id: String,
    push_notification_config: PushConfig,
}

/// Where changes of the status of a task are to be sent.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PushConfig {
    url: String,
    token: Option<String>,
    authentication: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfTask {
    /// The task.
    id: String,
    push_notification_config_id: Option<String>,
}

impl Protocol {
    /// The configuration that a message brings along, before the message does anything: what can be refused of it already is.
    ///
    /// # Errors
    /// It brings credentials, its address or its token cannot be, or the caller may not have notifications sent.
    pub(super) fn push_of(&self, caller: &Caller, config: Option<Value>) -> Result<Option<PushConfig>, RpcError> {
        let Some(config) = config.filter(|given| !given.is_null()) else { return Ok(None) };
        let config = read::<PushConfig>(config)?.without_credentials()?;
        // What is sent is the status of the task.
        [Operation::CreateSessionWebhook, Operation::GetTask]
            .into_iter()
            .try_for_each(|operation| check_scope(&caller.actor, operation))
            .and_then(|()| self.streaming.operations.check_webhook(config.webhook(None)))
            .map_err(|error| refused(&error))?;
        Ok(Some(config))
    }

    /// Sets what a message brought along, which began or answered `task`.
    ///
    /// # Errors
    /// It could not be set; the message has done what it does, and the error names the task.
    pub(super) async fn push_with(
        &self,
        caller: &Caller,
        task: &TaskId,
        config: Option<PushConfig>,
    ) -> Result<(), RpcError> {
        let Some(config) = config else { return Ok(()) };
        self.set(caller, task, config).await.map(|_| ()).map_err(|error| error.about_task(task))
    }

    pub(super) async fn set_push(&self, caller: &Caller, params: Value) -> Result<Value, RpcError> {
        let SetParams { task_id, push_notification_config: config } = read(params)?;
        self.set(caller, &known_task(&task_id)?, config.without_credentials()?).await
    }

    async fn set(&self, caller: &Caller, task: &TaskId, config: PushConfig) -> Result<Value, RpcError> {
        let path = self.webhooks_of(caller, task).await?;
        let body = json!(config.webhook(Some(task)));
        let made = self.ask(caller, Ask::post(&path, body, None)).await.map_err(|error| refused(&error))?;
        Ok(told(&made, config.token.as_deref()))
    }

    pub(super) async fn get_push(&self, caller: &Caller, params: Value) -> Result<Value, RpcError> {
        let wanted = params.get("pushNotificationConfigId").and_then(Value::as_str).map(str::to_owned);
        let all = self.list_push(caller, params).await?;
        let is_wanted =
            |config: &&Value| wanted.as_ref().is_none_or(|id| config["pushNotificationConfig"]["id"] == *id);
        let found = all.as_array().into_iter().flatten().find(is_wanted).cloned();
        found.ok_or_else(|| RpcError::new(PARAMS, "there is no such configuration"))
    }

    pub(super) async fn list_push(&self, caller: &Caller, params: Value) -> Result<Value, RpcError> {
        let OfTask { id, .. } = read(params)?;
        let task = known_task(&id)?;
        let path = self.webhooks_of(caller, &task).await?;
        let list = self.ask(caller, Ask::get(&path, "")).await.map_err(|error| refused(&error))?;
        let all = list["data"].as_array().into_iter().flatten();
        Ok(all.filter(|webhook| webhook["task_id"] == task.as_str()).map(shown).collect())
    }

    pub(super) async fn delete_push(&self, caller: &Caller, params: Value) -> Result<Value, RpcError> {
        let OfTask { id, push_notification_config_id } = read(params)?;
        let webhook = WebhookId::from(push_notification_config_id.unwrap_or_default());
        if !webhook.is_well_formed() {
            return Err(RpcError::new(PARAMS, "there is no such configuration"));
        }
        let path = format!("{}/{webhook}", self.webhooks_of(caller, &known_task(&id)?).await?);
        self.ask(caller, Ask::delete(&path)).await.map_err(|error| refused(&error))
    }

    /// The path of the webhooks of the session of `task`.
    async fn webhooks_of(&self, caller: &Caller, task: &TaskId) -> Result<String, RpcError> {
        let task = self.ask(caller, Ask::get(&format!("/v1/tasks/{task}"), "")).await;
        let task = task.map_err(|error| task_error(&error))?;
        Ok(format!("/v1/sessions/{}/webhooks", task["session_id"].as_str().unwrap_or_default()))
    }
}

impl PushConfig {
    /// The webhook of `task` that it stands for.
    fn webhook(&self, task: Option<&TaskId>) -> CreateWebhookRequest {
        CreateWebhookRequest {
            url: self.url.clone(),
            task_id: task.cloned(),
            events: Vec::new(),
            format: WebhookFormat::A2a,
            token: self.token.clone(),
        }
    }

    /// # Errors
    /// It brings credentials.
    fn without_credentials(self) -> Result<Self, RpcError> {
        if self.authentication.as_ref().is_some_and(|given| !given.is_null()) {
            let message = "credentials are not kept: check the token, or the webhook-signature of each notification, whose \
                `secret` tasks/pushNotificationConfig/set answers";
            return Err(RpcError::new(PARAMS, message));
        }
        Ok(self)
    }
}

/// A webhook that was made, as whoever sets it is told: with the key of its signatures, which no other answer has.
fn told(made: &Value, token: Option<&str>) -> Value {
    let mut told = shown(made);
    told["pushNotificationConfig"]["token"] = json!(token);
    told["pushNotificationConfig"]["secret"] = made["secret"].clone();
    told
}

/// A webhook as A2A shows it.
fn shown(webhook: &Value) -> Value {
    json!({
        "taskId": webhook["task_id"],
        "pushNotificationConfig": { "id": webhook["id"], "url": webhook["url"] },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_sets_a_configuration_is_told_the_key_of_its_signatures_and_nobody_else_is() {
        let made =
            json!({ "id": "webhook_1", "task_id": "task_1", "url": "https://a.example.com", "secret": "whsec_x" });
        let config =
            json!({ "id": "webhook_1", "url": "https://a.example.com", "token": "t0k3n", "secret": "whsec_x" });
        assert_eq!(told(&made, Some("t0k3n")), json!({ "taskId": "task_1", "pushNotificationConfig": config }));
        assert!(!shown(&made).to_string().contains("whsec_x"));
    }
}
