//! *Chat*: a conversation with a model. Until a provider is configured, the model is an offline script, and replies
//! that it is.

use std::sync::Arc;

use async_trait::async_trait;
use dormouse::{
    Answer, CompiledGraph, END, EngineError, Graph, NodeError, Reducer, Rule, SessionConcurrency, SessionPolicy,
    Target, Update, Wait, invocation_id, state,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Name of the graph.
pub const CHAT: &str = "chat";

state! {
    /// State of a conversation.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    pub struct Conversation {
        /// All messages, oldest first, each in the shape of llm-provider §3.
        pub messages: Vec<Value>,
        /// True if a person allowed what the user asked for last: what the awaited signal carries.
        pub allowed: Option<bool>,
    }
}

impl Conversation {
    /// The text of the last message of the user.
    fn question(&self) -> &str {
        let last = self.messages.iter().rev().find(|message| message["role"] == "user");
        last.and_then(|message| message["content"].as_str()).unwrap_or_default()
    }

    fn needs_a_person(&self) -> bool {
        self.question().to_lowercase().contains("approval")
    }
}

/// Model that answers in a conversation.
#[async_trait]
pub trait ChatModel: Send + Sync {
    /// The answer to `conversation`.
    ///
    /// # Errors
    /// One of the provider categories of llm-provider §7.
    async fn answer(&self, conversation: &Conversation) -> Result<String, NodeError>;

    /// True if the same conversation always gets the same answer, and no model is asked for it.
    fn is_script(&self) -> bool {
        false
    }
}

/// The offline model: a fixed script, no intelligence.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScriptedModel;

#[async_trait]
impl ChatModel for ScriptedModel {
    fn is_script(&self) -> bool {
        true
    }

    async fn answer(&self, conversation: &Conversation) -> Result<String, NodeError> {
        let question = conversation.question();
        Ok(match conversation.allowed {
            Some(true) => format!("[scripted model] A person allowed it: \"{question}\" would be done now."),
            Some(false) => "[scripted model] A person said no, so I leave it.".to_owned(),
            None => format!(
                "[scripted model] I am a script, not a language model. I read \"{question}\" as message {}. \
                 Mention an approval, and I wait for a person.",
                conversation.messages.len()
            ),
        })
    }
}

/// `listen -> answer`, or `listen -> announce -> wait -> answer` when a person has to allow it.
pub(crate) fn graph(model: Arc<dyn ChatModel>) -> Result<CompiledGraph, EngineError> {
    let is_script = model.is_script();
    let graph = Graph::<Conversation>::new(CHAT)
        .version("1")
        .inputs(Conversation::messages)
        .reducer(Conversation::messages, Reducer::Append)
        .sessions(SessionPolicy::keeping(Conversation::messages).concurrency(SessionConcurrency::Rebase))
        .entry("listen")
        .node("listen", async |()| Ok(Update::none()))
        .node("announce", async |()| Ok(says("I am asking a person for approval and go on when they answer.")))
        .wait("wait", wait_for_a_person)
        .node("answer", move |chat: Arc<Conversation>| {
            let model = model.clone();
            async move { Ok(says(&model.answer(&chat).await?)) }
        })
        .route("listen", ["announce", "answer"], |chat| {
            Target::from(if chat.needs_a_person() { "announce" } else { "answer" })
        })
        .edge("announce", "wait")
        .edge("wait", "answer")
        .edge("answer", END);
    if is_script { graph.pure().compile() } else { graph.compile() }
}

fn wait_for_a_person(chat: &Conversation) -> Result<Wait<Conversation>, NodeError> {
    let answer = Answer::new().required(Conversation::allowed, Rule::boolean());
    Ok(Wait::signal(format!("chat-{}", invocation_id()?), answer)
        .kind("approval")
        .describe(chat.question())
        .answers(Conversation::allowed.set(Some(true)), Conversation::allowed.set(Some(false))))
}

fn says(text: &str) -> Update<Conversation> {
    Conversation::messages.append([json!({ "role": "assistant", "content": text })])
}
