use serde::{Deserialize, Serialize};

/// A part of the content of a message (§3.1). In JSON its `type` says which.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Block {
    /// Text, in messages of users and assistants (§3.1.1).
    Text {
        /// Not empty.
        text: String,
        /// Token of the provider that came with it; given back unchanged, and only to that provider (§3.1.7).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
    },
    /// An image, in messages of users (§3.1.2) and results of tools.
    Image {
        /// Source of the image.
        source: ImageSource,
        /// `image/png`, `image/jpeg`, `image/webp` or another that the provider knows; needed for inline images.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        media_type: Option<String>,
        /// Wish for fidelity. Providers that have no such thing ignore it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<ImageDetail>,
    },
    /// Reasoning that the provider has shown, in messages of assistants (§3.1.4).
    Thinking {
        /// Not empty.
        text: String,
        /// Token with which the provider recognises the block when it gets it back.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
    },
    /// Reasoning that the provider has hidden, in messages of assistants (§3.1.5).
    RedactedThinking {
        /// What stands for it; given back unchanged.
        data: String,
    },
}

impl Block {
    /// Text without a signature.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into(), signature: None }
    }

    /// An image at an address.
    pub fn image_url(url: impl Into<String>) -> Self {
        Self::Image { source: ImageSource::Url { url: url.into() }, media_type: None, detail: None }
    }

    /// An image as bytes in Base64.
    pub fn image_inline(media_type: impl Into<String>, base64_data: impl Into<String>) -> Self {
        let source = ImageSource::Inline { base64_data: base64_data.into() };
        Self::Image { source, media_type: Some(media_type.into()), detail: None }
    }

    /// An image that is kept beside the conversation under `id`.
    pub fn image_kept(media_type: impl Into<String>, id: impl Into<String>) -> Self {
        let source = ImageSource::Kept { id: id.into() };
        Self::Image { source, media_type: Some(media_type.into()), detail: None }
    }

    /// True for reasoning, shown or hidden.
    pub fn is_reasoning(&self) -> bool {
        match self {
            Self::Thinking { .. } | Self::RedactedThinking { .. } => true,
            Self::Text { .. } | Self::Image { .. } => false,
        }
    }
}

/// Source of an image (§3.1.3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum ImageSource {
    /// At an address, which is passed on unchanged.
    Url {
        /// `https:`, `http:`, `data:` or a scheme that the provider knows.
        url: String,
    },
    /// In the message itself.
    Inline {
        /// The bytes in Base64; passed on unread.
        base64_data: String,
    },
    /// Kept beside the conversation ([`Images`](crate::Images)). Whoever asks a model reads it first; no provider takes it so.
    Kept {
        /// Its id there.
        id: String,
    },
}

/// Wish for the fidelity with which an image is processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ImageDetail {
    /// The provider decides.
    Auto,
    /// Coarse and cheap.
    Low,
    /// Fine.
    High,
}

impl ImageDetail {
    /// The name on wires.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Low => "low",
            Self::High => "high",
        }
    }
}
