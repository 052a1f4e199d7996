use std::fmt;

use async_trait::async_trait;

use crate::{InvocationId, SessionId};

/// Media types of images that models take.
pub const IMAGE_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
/// The most bytes of an image that models take.
pub const IMAGE_BYTES: usize = 3_750_000;

/// The media type of an image that models take, by its first bytes: what comes with an image often names another one, which
/// providers refuse. `None` for all others.
pub fn image_type(bytes: &[u8]) -> Option<&'static str> {
    let [png, jpeg, gif, webp] = IMAGE_TYPES;
    let is_webp = bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP");
    let known = [
        (png, bytes.starts_with(b"\x89PNG\r\n\x1a\n")),
        (jpeg, bytes.starts_with(b"\xff\xd8\xff")),
        (gif, bytes.starts_with(b"GIF87a") || bytes.starts_with(b"GIF89a")),
        (webp, is_webp),
    ];
    known.into_iter().find(|(_, is_it)| *is_it).map(|(media_type, _)| media_type)
}

/// Images of conversations, which are kept beside the states that name them.
#[async_trait]
pub trait Images: fmt::Debug + Send + Sync {
    /// Keeps `image` for the run `of` and its session, and gives its id, which ends with the SHA-256 of the bytes in
    /// hexadecimal. The same image of the same session has one id, and is kept once however often it is given.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_known_by_its_first_bytes() {
        for (bytes, media_type) in [
            (&b"\x89PNG\r\n\x1a\n..."[..], Some("image/png")),
            (b"\xff\xd8\xff\xe0", Some("image/jpeg")),
            (b"GIF89a", Some("image/gif")),
            (b"RIFF\x10\0\0\0WEBPVP8 ", Some("image/webp")),
            (b"RIFF\x10\0\0\0WAVE", None),
            (b"<svg>", None),
            (b"", None),
        ] {
            assert_eq!(image_type(bytes), media_type, "{bytes:?}");
        }
    }
}
