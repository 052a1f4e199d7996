use axum::serve;
use dormouse_local::EmbeddedDynamoDb;
use tokio::net::TcpListener;

/// What the door of [`open_door`] asks for, as the session token of otherwise arbitrary credentials.
pub const STORE_SECRET: &str = "knock-knock-knock-knock-knock-knock";

/// Lets other processes ask `store`, at the address that is returned, until the runtime ends.
///
/// # Panics
/// When there is no port.
pub async fn open_door(store: &EmbeddedDynamoDb) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let routes = store.door(STORE_SECRET).at("/");
    tokio::spawn(async move { serve(listener, routes).await });
    format!("http://{address}")
}
