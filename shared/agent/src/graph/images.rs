//! Images of results and messages: kept beside the state, which names them, and read when a model is asked.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dormouse_engine::current;
use dormouse_ports::model::{
    BackgroundJob, BackgroundProvider, BackgroundStatus, Block, CallOptions, CompletionRequest, Content, ImageSource,
    Message, ModelError, ModelErrorCategory, ModelIdentity, ModelProvider, Response, StartedJob,
};
use dormouse_ports::tool::ToolOutput;
use dormouse_ports::{
    ArtifactPlace, IMAGE_BYTES, IMAGE_TYPES, Image, ImageOwner, Images, Map, StateArtifact, WORKSPACE, image_type,
};
use futures::future::try_join_all;
use serde_json::{Value, json};

use super::digest;
use super::outputs::Outputs;
use super::parts::AgentParts;
use super::run::{AgentRun, CallStatus, PlannedCall};

/// Field of the result of a call with its images.
pub(crate) const IMAGES: &str = "images";
/// Images of one result that are kept.
const MOST_OF_RESULT: usize = 8;
/// Images of one request, the newest: no provider of those that are asked takes fewer.
const MOST_SHOWN: usize = 20;
/// Images that are read at a time: each has its bytes in memory, whether it has room or not.
const READ_TOGETHER: usize = 5;
/// Why no image is shown to a model, and where none is kept.
const TAKES_NONE: &str = "the definition of your model does not say `input: [text, image]`";
const KEPT_NOWHERE: &str = "images are not kept here";
/// Bytes of all of these together: in Base64 a third more, which the strictest provider takes.
const MOST_BYTES: usize = 12 * 1024 * 1024;

/// An image of a result, before it has its place in the conversation.
#[derive(Clone, Debug)]
pub(crate) enum Picture {
    /// It came with the result.
    New(Image),
    /// It is kept already, as that of a call that is repeated.
    Kept(Block),
}

/// What a model is told of an image in Base64 that it is not shown.
pub(crate) fn hidden((media_type, data): (&str, &str), reason: &str) -> String {
    format!("[image, {media_type}, {} bytes of Base64, which cannot be shown to you: {reason}]", data.len())
}

/// What a model is told of an image of an output, behind `before` others, and the image where it may be shown it.
pub(crate) fn told(parts: &AgentParts, before: usize, (media_type, data): (&str, &str)) -> (String, Option<Image>) {
    let hidden = |reason: &str| (hidden((media_type, data), reason), None);
    if !parts.model.takes_images {
        return hidden(TAKES_NONE);
    }
    if parts.images.is_none() {
        return hidden(KEPT_NOWHERE);
    }
    if before >= MOST_OF_RESULT {
        return hidden(&format!("of one result {MOST_OF_RESULT} images are shown"));
    }
    match STANDARD.decode(data) {
        Ok(bytes) if bytes.len() > IMAGE_BYTES => hidden(&format!("it may have {IMAGE_BYTES} bytes")),
        Ok(bytes) => match image_type(&bytes) {
            Some(found) => (
                format!("[image, {found}, {} bytes]", bytes.len()),
                Some(Image { media_type: found.to_owned(), bytes }),
            ),
            None => hidden(&format!("it is none of {}", IMAGE_TYPES.join(", "))),
        },
        Err(_) => hidden("it is no Base64"),
    }
}

/// The images of `output` that a model may be shown.
pub(crate) fn of_output(output: &ToolOutput, new: Vec<Image>) -> Vec<Picture> {
    let kept = output.images.iter().cloned().map(Picture::Kept);
    new.into_iter().map(Picture::New).chain(kept).collect()
}

/// Keeps `pictures` as the images of `call`, and gives the artifacts that they are. Of one that cannot be kept the model is told
/// that it is not shown. The same picture twice is one.
pub(crate) async fn keep(
    parts: &AgentParts,
    call: &mut PlannedCall,
    pictures: Vec<Picture>,
    outputs: &mut Outputs,
) -> Vec<StateArtifact> {
    let mut left = Vec::new();
    let mut seen = BTreeSet::new();
    for picture in pictures {
        let image = match picture {
            Picture::Kept(block) => {
                call.images.push(block);
                continue;
            }
            Picture::New(image) => image,
        };
        let content = digest::of_bytes(&image.bytes);
        if !seen.insert(content.clone()) {
            continue;
        }
        match kept(parts, &image, content, outputs).await {
            Ok(id) => {
                call.images.push(Block::image_kept(image.media_type.as_str(), id.as_str()));
                left.extend(outputs.has_place().then(|| artifact(call, &image, id)));
            }
            Err(reason) => tell(call, &format!("[the image is not shown to you: {reason}]")),
        }
    }
    left
}

async fn kept(parts: &AgentParts, image: &Image, content: String, outputs: &mut Outputs) -> Result<String, String> {
    let (Some(images), Some(owner)) = (&parts.images, owner()) else { return Err(KEPT_NOWHERE.into()) };
    if !outputs.takes(content, image.bytes.len()) {
        return Err(format!("of one run {} bytes of images are kept", parts.limits.kept_images));
    }
    images.keep(&owner, image).await.map_err(|error| {
        tracing::warn!(%error, "an image of a tool is not kept; its model is told so");
        error.to_string()
    })
}

fn artifact(call: &PlannedCall, image: &Image, id: String) -> StateArtifact {
    let mut metadata = Map::new();
    metadata.insert("tool".to_owned(), call.tool.as_str().into());
    metadata.insert("tool_call_id".to_owned(), call.id.as_str().into());
    metadata.insert("bytes".to_owned(), image.bytes.len().into());
    StateArtifact { place: ArtifactPlace::Image(id), mime_type: image.media_type.clone(), metadata }
}

fn tell(call: &mut PlannedCall, words: &str) {
    if let CallStatus::Answered { text, .. } = &mut call.status {
        text.push('\n');
        text.push_str(words);
    }
}

/// The images of `call`, as entries tell of them: type and id of each.
pub(crate) fn listed(call: &PlannedCall) -> Vec<Value> {
    let one = |block: &Block| match block {
        Block::Image { source: ImageSource::Kept { id }, media_type, .. } => {
            Some(json!({ "media_type": media_type, "id": id }))
        }
        Block::Image { .. } | Block::Text { .. } | Block::Thinking { .. } | Block::RedactedThinking { .. } => None,
    };
    call.images.iter().filter_map(one).collect()
}

/// Digests of the images of the results in `messages` of a state.
pub(crate) fn contents(messages: &[Value]) -> impl Iterator<Item = &str> {
    let blocks = messages.iter().filter_map(|message| message.get(IMAGES)?.as_array()).flatten();
    // An id ends with the digest.
    blocks.filter_map(|block| block.pointer("/source/id")?.as_str()?.rsplit('/').next())
}

/// Images of the content and the result in `message`, a message of a state, whose bytes are elsewhere.
pub(crate) fn count(message: &Value) -> u64 {
    let blocks = ["content", IMAGES].into_iter().filter_map(|field| message.get(field)?.as_array()).flatten();
    let is_elsewhere = |block: &&Value| block["type"] == "image" && block["source"]["type"] != "inline";
    u64::try_from(blocks.filter(is_elsewhere).count()).unwrap_or(u64::MAX)
}

/// The run around this place, as the owner of its images.
fn owner() -> Option<ImageOwner> {
    let identity = current()?;
    Some(ImageOwner {
        tenant: identity.begun_for.clone(),
        workspace: identity.metadata.get(WORKSPACE).and_then(Value::as_str).map(str::to_owned),
        session: identity.session_id.clone(),
        invocation: identity.invocation_id.clone(),
    })
}

impl AgentParts {
    /// True if the model is shown images.
    pub(crate) fn shows_images(&self) -> bool {
        self.model.takes_images && self.images.is_some()
    }

    /// The same, whose model is shown what `images` keeps.
    #[must_use]
    pub fn showing(mut self, images: Option<Arc<dyn Images>>) -> Self {
        let model = &mut self.model;
        let takes = model.takes_images;
        let shown = |provider| Shown { asked: provider, images: images.clone(), takes };
        model.provider = Arc::new(shown(model.provider.clone()));
        if let Some(provider) = model.background.take() {
            model.background = Some(Arc::new(Shown { asked: provider, images: images.clone(), takes }));
        }
        self.images = images;
        self
    }
}

/// A model that is shown the images which a request names.
struct Shown<P: ?Sized> {
    asked: Arc<P>,
    images: Option<Arc<dyn Images>>,
    takes: bool,
}

impl<P: ?Sized> Shown<P> {
    /// `request` with the bytes of the images that it names, or with words in their places.
    async fn read<'r>(&self, request: &'r CompletionRequest) -> Result<Cow<'r, CompletionRequest>, ModelError> {
        let ids: Vec<&str> = request.messages.iter().flat_map(kept_in).collect();
        if ids.is_empty() {
            return Ok(Cow::Borrowed(request));
        }
        let found = self.found(&ids).await?;
        let mut request = request.clone();
        request.messages.iter_mut().for_each(|message| put(message, &found));
        Ok(Cow::Owned(request))
    }

    /// The images `ids`, which stand in the order of the conversation, each or why it is not shown. Behind the first that has no
    /// room none is looked for.
    async fn found(&self, ids: &[&str]) -> Result<BTreeMap<String, Result<Image, String>>, ModelError> {
        let all = |reason: &str| ids.iter().map(|id| ((*id).to_owned(), Err(reason.to_owned()))).collect();
        let mut found: BTreeMap<String, Result<Image, String>> = match (&self.images, self.takes) {
            (_, false) => return Ok(all(TAKES_NONE)),
            (None, true) => return Ok(all(KEPT_NOWHERE)),
            (Some(_), true) => all("newer ones are"),
        };
        let (Some(images), Some(owner)) = (&self.images, owner()) else { return Ok(all(KEPT_NOWHERE)) };
        let mut seen = BTreeSet::new();
        let newest: Vec<&str> = ids.iter().rev().copied().filter(|id| seen.insert(*id)).take(MOST_SHOWN).collect();
        let mut bytes = 0;
        for some in newest.chunks(READ_TOGETHER) {
            let read = try_join_all(some.iter().map(|id| images.image(&owner, id))).await;
            let read = read.map_err(|error| ModelError::new(ModelErrorCategory::Unavailable, error.to_string()))?;
            for (id, image) in some.iter().zip(read) {
                bytes += image.as_ref().map_or(0, |image| image.bytes.len());
                if bytes > MOST_BYTES {
                    return Ok(found);
                }
                found.insert((*id).to_owned(), image.ok_or_else(|| "its bytes are not here".to_owned()));
            }
        }
        Ok(found)
    }
}

/// True if `error` refused `request` because of its images: with them, the conversation would never go on.
pub(crate) fn are_refused(parts: &AgentParts, request: &CompletionRequest, error: &ModelError) -> bool {
    let refused = error.category == ModelErrorCategory::UnsupportedContentBlock
        && parts.shows_images()
        && request.messages.iter().flat_map(kept_in).next().is_some();
    if refused {
        tracing::warn!(%error, "a provider refused the images of a conversation; its model is told of them in words");
    }
    refused
}

/// `request` as the model of `run` takes it: with words in the places of images, where it refused those of this run.
pub(crate) fn taken<'r>(
    parts: &AgentParts,
    run: &AgentRun,
    request: &'r CompletionRequest,
) -> Cow<'r, CompletionRequest> {
    if run.images_refused.is_empty() || run.images_refused != parts.model.reference {
        return Cow::Borrowed(request);
    }
    Cow::Owned(in_words(request))
}

/// `request` with words in the places of the images that it names, which the provider refused.
pub(crate) fn in_words(request: &CompletionRequest) -> CompletionRequest {
    let refused = || Err("the provider refused the images of this conversation".to_owned());
    let ids = request.messages.iter().flat_map(kept_in);
    let found: BTreeMap<String, Result<Image, String>> = ids.map(|id| (id.to_owned(), refused())).collect();
    let mut told = request.clone();
    told.messages.iter_mut().for_each(|message| put(message, &found));
    told
}

fn blocks_of(message: &Message) -> &[Block] {
    match message {
        Message::User { content } => content.blocks().unwrap_or_default(),
        Message::Tool { images, .. } => images,
        Message::System { .. } | Message::Assistant(_) => &[],
    }
}

fn kept_in(message: &Message) -> impl Iterator<Item = &str> {
    blocks_of(message).iter().filter_map(kept_id)
}

fn kept_id(block: &Block) -> Option<&str> {
    match block {
        Block::Image { source: ImageSource::Kept { id }, .. } => Some(id),
        Block::Image { .. } | Block::Text { .. } | Block::Thinking { .. } | Block::RedactedThinking { .. } => None,
    }
}

/// Puts what was `found` in the place of the names in `message`.
fn put(message: &mut Message, found: &BTreeMap<String, Result<Image, String>>) {
    let shown = |block: Block| -> Result<Block, String> {
        let Some(id) = kept_id(&block) else { return Ok(block) };
        match found.get(id) {
            Some(Ok(image)) => Ok(Block::image_inline(image.media_type.as_str(), STANDARD.encode(&image.bytes))),
            Some(Err(reason)) => Err(named(&block, id, reason)),
            None => Err(named(&block, id, "it was not read")),
        }
    };
    match message {
        Message::Tool { content, images, .. } => {
            for block in std::mem::take(images) {
                match shown(block) {
                    Ok(block) => images.push(block),
                    Err(words) => content.push_str(&format!("\n{words}")),
                }
            }
        }
        Message::User { content: Content::Blocks(blocks) } => {
            let read = std::mem::take(blocks).into_iter().map(|block| shown(block).unwrap_or_else(Block::text));
            let read: Vec<Block> = read.collect();
            let texts: Option<Vec<&str>> = read.iter().map(plain).collect();
            let content = match texts {
                // Not every server takes text in blocks.
                Some(texts) => texts.join("\n").into(),
                None => Content::Blocks(read),
            };
            *message = Message::User { content };
        }
        Message::User { content: Content::Text(_) } | Message::System { .. } | Message::Assistant(_) => {}
    }
}

/// What a model is told of the image `id` in `block`, which it is not shown. Images of tools have ids that are of no use to it.
fn named(block: &Block, id: &str, reason: &str) -> String {
    let mut words = "[an image".to_owned();
    if let Block::Image { media_type: Some(media_type), .. } = block {
        words.push_str(&format!(", {media_type}"));
    }
    if !id.contains('/') {
        words.push_str(&format!(", artifact {id}"));
    }
    format!("{words}, which cannot be shown to you: {reason}]")
}

fn plain(block: &Block) -> Option<&str> {
    match block {
        Block::Text { text, .. } => Some(text),
        Block::Image { .. } | Block::Thinking { .. } | Block::RedactedThinking { .. } => None,
    }
}

#[async_trait]
impl ModelProvider for Shown<dyn ModelProvider> {
    fn identity(&self) -> ModelIdentity {
        self.asked.identity()
    }

    async fn ready(&self) -> Result<(), ModelError> {
        self.asked.ready().await
    }

    async fn complete(&self, request: &CompletionRequest, options: &CallOptions) -> Result<Response, ModelError> {
        let read = self.read(request).await?;
        self.asked.complete(&read, options).await
    }
}

#[async_trait]
impl BackgroundProvider for Shown<dyn BackgroundProvider> {
    async fn start(&self, request: &CompletionRequest, key: &str) -> Result<StartedJob, ModelError> {
        let read = self.read(request).await?;
        self.asked.start(&read, key).await
    }

    /// The images are in the job already.
    async fn poll(&self, job: &BackgroundJob, request: &CompletionRequest) -> Result<BackgroundStatus, ModelError> {
        self.asked.poll(job, request).await
    }

    async fn cancel(&self, job: &BackgroundJob) -> Result<(), ModelError> {
        self.asked.cancel(job).await
    }
}
