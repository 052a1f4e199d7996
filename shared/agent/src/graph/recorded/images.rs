//! Images as they are kept.

use std::sync::Arc;

use async_trait::async_trait;
use dormouse_ports::{Image, ImageOwner, Images, ImagesError};
use serde_json::Value;

use super::super::digest;
use super::super::images::IMAGES;
use super::past::Past;

/// The images of the run: what came to it then is known by its content, and nothing is kept once more.
#[derive(Debug)]
pub(super) struct RecordedImages(pub(super) Arc<Past>);

#[async_trait]
impl Images for RecordedImages {
    async fn keep(&self, _: &ImageOwner, image: &Image) -> Result<String, ImagesError> {
        let content = digest::of_bytes(&image.bytes);
        let results = self.0.messages_at_end().iter().filter_map(|message| message.get(IMAGES)?.as_array()).flatten();
        let mut ids = results.filter_map(|block| block.pointer("/source/id").and_then(Value::as_str));
        let known = ids.find(|id| id.ends_with(&content)).map(str::to_owned);
        known.ok_or_else(|| ImagesError("the image is not in the record of the run".to_owned()))
    }

    /// A model is asked nothing in a replay.
    async fn image(&self, _: &ImageOwner, _: &str) -> Result<Option<Image>, ImagesError> {
        Ok(None)
    }
}
