//! WebSockets: carries the frames of the application.

use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::extract::{FromRequestParts, Request};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dormouse_http::{Frames, LARGEST_FRAME, Server, Socket, SocketReply};
use futures::{SinkExt, StreamExt};

use crate::gateway::{encode, headed};
use crate::shutdown::RunningGuard;

/// Bytes that are read of a socket at once.
const READ_BUFFER: usize = 4 * 1024;

/// True if `request` asks for a WebSocket.
pub(crate) fn is_asked_for(request: &Request) -> bool {
    let upgrade = request.headers().get(header::UPGRADE).and_then(|value| value.to_str().ok());
    upgrade.is_some_and(|upgrade| upgrade.eq_ignore_ascii_case("websocket"))
}

/// Opens the WebSocket that `request` asks for, or refuses it.
pub(crate) async fn open(server: &Server, request: Request, running: RunningGuard) -> Response {
    let (mut head, _) = request.into_parts();
    let upgrade = match WebSocketUpgrade::from_request_parts(&mut head, &()).await {
        Ok(upgrade) => upgrade,
        Err(rejection) => return rejection.into_response(),
    };
    if !has_key(&head.headers) {
        let message = "sec-websocket-key has to be 16 bytes in base64";
        return (StatusCode::BAD_REQUEST, message).into_response();
    }
    let asked = headed(&head);
    let upgrade = match Socket::subprotocol(&asked) {
        Some(protocol) => upgrade.protocols([protocol]),
        None => upgrade,
    };
    match server.socket(asked).await {
        Ok((socket, frames)) => {
            let upgrade = upgrade.max_message_size(LARGEST_FRAME).max_frame_size(LARGEST_FRAME);
            // Most sockets are silent: a buffer for each is most of what they cost.
            let upgrade = upgrade.read_buffer_size(READ_BUFFER);
            upgrade.on_upgrade(move |connection| carry(connection, socket, frames, running))
        }
        Err(refusal) => encode(refusal, running),
    }
}

/// Carries frames both ways until one side ends it.
async fn carry(mut connection: WebSocket, mut socket: Socket, mut frames: Frames, running: RunningGuard) {
    let (code, reason) = loop {
        tokio::select! {
            frame = frames.next() => match frame {
                Some(frame) => {
                    if connection.send(Message::text(frame.text)).await.is_err() {
                        return;
                    }
                }
                None => break (close_code::NORMAL, "the stream has ended"),
            },
            message = connection.recv() => match message {
                Some(Ok(Message::Text(text))) => match socket.take(&text).await {
                    SocketReply::Frame(frame) => {
                        if connection.send(Message::text(frame)).await.is_err() {
                            return;
                        }
                    }
                    SocketReply::Resumed(again) => frames = again,
                    SocketReply::Closed(reason) => break (close_code::POLICY, reason),
                },
                Some(Ok(Message::Binary(_))) => break (close_code::UNSUPPORTED, "frames are text"),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(Message::Close(_))) => {
                    // The answer to it is sent with what is written next (RFC 6455 §5.5.1).
                    let _ = connection.flush().await;
                    return;
                }
                None => return,
                Some(Err(error)) => match close_of(error) {
                    Some(close) => break close,
                    None => return,
                },
            },
            () = running.stopping() => break (close_code::RESTART, "the server ends"),
        }
    };
    let close = CloseFrame { code, reason: reason.into() };
    let _ = connection.send(Message::Close(Some(close))).await;
}

/// True if `headers` have the key of a handshake (RFC 6455 §4.1).
fn has_key(headers: &HeaderMap) -> bool {
    let key = headers.get(header::SEC_WEBSOCKET_KEY).and_then(|key| STANDARD.decode(key).ok());
    key.is_some_and(|key| key.len() == 16)
}

/// The code and reason with which a connection is closed over which `error` came (RFC 6455 §7.4.1); none where it is gone.
fn close_of(error: axum::Error) -> Option<(u16, &'static str)> {
    let error = error.into_inner().downcast::<tungstenite::Error>().ok()?;
    let is = |one: bool, code: u16, reason: &'static str| one.then_some((code, reason));
    is(matches!(*error, tungstenite::Error::Capacity(_)), close_code::SIZE, "the frame is too large")
        .or(is(matches!(*error, tungstenite::Error::Utf8(_)), close_code::INVALID, "frames are UTF-8"))
        .or(is(matches!(*error, tungstenite::Error::Protocol(_)), close_code::PROTOCOL, "this is no frame of a client"))
}
