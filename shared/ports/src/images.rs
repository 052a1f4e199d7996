use std::fmt;

use async_trait::async_trait;

use crate::{InvocationId, SessionId};

/// Media types of images that models take.
pub const IMAGE_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
/// The most bytes of an image that models take.
pub const IMAGE_BYTES: usize = 3_750_000;

/// Images of conversations, which are kept beside the states that name them.
#[async_trait]
pub trait Images: fmt::Debug + Send + Sync {
    /// Keeps `image` for the run `of` and its session, and gives its id. The same image of the same session has one id, and
    /// is kept once however often it is given.
    ///
    /// # Errors
    /// [`ImagesError`].
    async fn keep(&self, of: &ImageOwner, image: &Image) -> Result<String, ImagesError>;

    /// The image `id`, as the run `of` may have it: one that was kept in its workspace, or an artifact of its workspace that
    /// is an image and whose bytes are here. `None` where there is none.
    ///
    /// # Errors
    /// [`ImagesError`].
    async fn image(&self, of: &ImageOwner, id: &str) -> Result<Option<Image>, ImagesError>;
}

/// An image.
#[derive(Clone, PartialEq, Eq)]
pub struct Image {
    /// Its media type.
    pub media_type: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { media_type, bytes } = self;
        f.debug_struct("Image").field("media_type", media_type).field("bytes", &bytes.len()).finish()
    }
}

/// The run for which images are kept and read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageOwner {
    /// The tenant in whose name it began.
    pub tenant: Option<String>,
    /// The workspace that it works in.
    pub workspace: Option<String>,
    /// Its session.
    pub session: Option<SessionId>,
    /// The run itself.
    pub invocation: InvocationId,
}

/// Error of keeping or reading images.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the images of the conversation cannot be had now: {0}")]
pub struct ImagesError(pub String);
