//! WebSockets: carries the frames of the application.

use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::extract::{FromRequestParts, Request};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dormouse_http::{Frames, LARGEST_FRAME, Socket, SocketReply};
use futures::{SinkExt, StreamExt};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::gate::{Credentials, Gate};
use crate::gateway::{Front, encode, headed, overload, too_much};
use crate::lane::Lane;
use crate::shutdown::RunningGuard;

/// The version of the protocol of sockets (RFC 6455).
const VERSION: &str = "13";
/// Bytes that are read of a socket at once.
const READ_BUFFER: usize = 4 * 1024;
/// Time that the last frame may take.
const LAST: Duration = Duration::from_secs(1);

/// True if `request` asks for a WebSocket.
pub(crate) fn is_asked_for(request: &Request) -> bool {
    let upgrade = request.headers().get(header::UPGRADE).and_then(|value| value.to_str().ok());
    upgrade.is_some_and(|upgrade| upgrade.eq_ignore_ascii_case("websocket"))
}

/// Opens the WebSocket that `request` asks for, or refuses it. It is opened and carried in the lane of its caller.
pub(crate) async fn open(front: &Front, request: Request) -> Response {
    let Front { server, running, gate, .. } = front;
    let (mut head, _) = request.into_parts();
    if head.headers.get(header::SEC_WEBSOCKET_VERSION).is_none_or(|version| version != VERSION) {
        // A client that speaks several is told which to try (RFC 6455 §4.4).
        let understood = [(header::SEC_WEBSOCKET_VERSION, VERSION), (header::UPGRADE, "websocket")];
        return (StatusCode::UPGRADE_REQUIRED, understood, "sec-websocket-version has to be 13").into_response();
    }
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
    let credentials = Socket::authorization(&asked).map(|presented| Credentials::new(&presented));
    let lane = gate.lane(credentials);
    let opened = {
        let _admitted = match gate.enter(lane.clone()).await {
            Ok(admitted) => admitted,
            Err(overloaded) => return overload(overloaded, true),
        };
        // A task of its own, which ends with this one: a connection that is not looked at must not hold a turn.
        let (server, mut opening) = (server.clone(), JoinSet::new());
        opening.spawn(gate.work(lane.clone(), async move { server.socket(asked).await }));
        match opening.join_next().await {
            Some(Ok(opened)) => opened,
            Some(Err(_)) | None => return StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        }
    };
    match opened {
        Ok((socket, frames)) => {
            let proved = credentials.zip(socket.caller().cloned());
            let lane = proved.map_or(lane, |(credentials, caller)| gate.learn(credentials, caller));
            let upgrade = upgrade.max_message_size(LARGEST_FRAME).max_frame_size(LARGEST_FRAME);
            // Most sockets are silent: a buffer for each is most of what they cost.
            let upgrade = upgrade.read_buffer_size(READ_BUFFER);
            let commands = Commands { gate: gate.clone(), lane: lane.clone() };
            let (gate, running) = (gate.clone(), running.clone());
            upgrade
                .on_upgrade(move |connection| gate.wait(lane, carry(connection, (socket, frames), commands, running)))
        }
        Err(refusal) => encode(refusal, running.clone()),
    }
}

/// What is done for the frames of a client: as much at a time as of requests.
struct Commands {
    gate: Gate,
    lane: Lane,
}

impl Commands {
    async fn take(&self, socket: &mut Socket, text: &str) -> SocketReply {
        match self.gate.enter(self.lane.clone()).await {
            Ok(_admitted) => self.gate.asked(&self.lane, socket.take(text)).await,
            Err(overloaded) => SocketReply::Frame(Socket::refusal_of(text, too_much(overloaded))),
        }
    }
}

/// Carries frames both ways until one side ends it.
async fn carry(
    mut connection: WebSocket,
    (mut socket, mut frames): (Socket, Frames),
    commands: Commands,
    running: RunningGuard,
) {
    let (code, reason) = loop {
        tokio::select! {
            frame = frames.next() => match frame {
                Some(frame) => {
                    if !send(&mut connection, frame.text, &running).await {
                        return;
                    }
                }
                None => break (close_code::NORMAL, "the stream has ended"),
            },
            message = connection.recv() => match message {
                Some(Ok(Message::Text(text))) => match commands.take(&mut socket, &text).await {
                    SocketReply::Frame(frame) => {
                        if !send(&mut connection, frame, &running).await {
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
    let _ = timeout(LAST, connection.send(Message::Close(Some(close)))).await;
}

/// Sends a frame. False where the client is gone, or has not read what was before it when the server ends.
async fn send(connection: &mut WebSocket, text: String, running: &RunningGuard) -> bool {
    tokio::select! {
        biased;
        sent = connection.send(Message::text(text)) => sent.is_ok(),
        () = running.stopping() => false,
    }
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
