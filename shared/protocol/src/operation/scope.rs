use serde::{Deserialize, Serialize};

macro_rules! scopes {
    ($($name:ident = $word:literal,)*) => {
        /// Right of the actor of a key: a kind of resource, and either to read or to write it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Scope {
            $(
                #[doc = concat!("`", $word, "`")]
                #[serde(rename = $word)]
                $name,
            )*
        }

        impl Scope {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The word for it, as keys and tokens have it.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)*
                }
            }

            /// The scope of this word.
            pub fn parse(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

// The first eight are those of the contract; the others follow their pattern. The last two are rights of those who operate a
// deployment: over everything that sleeps in it, of every tenant.
scopes! {
    SessionsRead = "sessions:read",
    SessionsWrite = "sessions:write",
    TasksRead = "tasks:read",
    TasksWrite = "tasks:write",
    EventsRead = "events:read",
    ArtifactsRead = "artifacts:read",
    ArtifactsWrite = "artifacts:write",
    ReceiptsRead = "receipts:read",
    WorkspacesRead = "workspaces:read",
    WorkspacesWrite = "workspaces:write",
    PersonasRead = "personas:read",
    PersonasWrite = "personas:write",
    MemoriesRead = "memories:read",
    MemoriesWrite = "memories:write",
    VaultsRead = "vaults:read",
    VaultsWrite = "vaults:write",
    ConnectorsRead = "connectors:read",
    ConnectorsWrite = "connectors:write",
    QuotasWrite = "quotas:write",
    SignalsWrite = "signals:write",
    AuditRead = "audit:read",
    OperationsRead = "operations:read",
    OperationsWrite = "operations:write",
}

impl Scope {
    /// True if it reaches beyond a tenant, over the whole deployment: for those who operate it, and given by name only.
    pub fn is_of_operators(self) -> bool {
        matches!(self, Self::OperationsRead | Self::OperationsWrite)
    }

    /// All that reach no further than the tenant of their key.
    pub fn of_tenant() -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(|scope| !scope.is_of_operators())
    }
}
