use async_trait::async_trait;
use dormouse_ports::{Secret, SecretError, Secrets};

/// Secrets in the environment of the process: the name of a secret is that of its variable. For the machine of a
/// developer; what is deployed takes its secrets from a store.
#[derive(Clone, Copy, Debug, Default)]
pub struct EnvironmentSecrets;

#[async_trait]
impl Secrets for EnvironmentSecrets {
    async fn resolve(&self, name: &str) -> Result<Secret, SecretError> {
        // The environment panics over names that no variable can have.
        let is_possible = !name.is_empty() && !name.contains(['=', '\0']);
        let value = is_possible.then(|| std::env::var(name).ok()).flatten();
        value.filter(|value| !value.is_empty()).map(Secret::new).ok_or_else(|| SecretError::Missing(name.to_owned()))
    }
}

/// Secrets of vaults in the environment of the process: the secret `TENANT.NAME` is the variable
/// `DORMOUSE_VAULT_TENANT_NAME`, and no other variable is one. The tenant has letters and digits only.
#[derive(Clone, Copy, Debug, Default)]
pub struct VaultEnvironment;

#[async_trait]
impl Secrets for VaultEnvironment {
    async fn resolve(&self, name: &str) -> Result<Secret, SecretError> {
        let missing = || SecretError::Missing(name.to_owned());
        let (tenant, secret) = name.split_once('.').ok_or_else(missing)?;
        let is_tenant = !tenant.is_empty() && tenant.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let is_name = secret.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if !is_tenant || !is_name {
            return Err(missing());
        }
        EnvironmentSecrets.resolve(&format!("DORMOUSE_VAULT_{tenant}_{secret}")).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_vault_reaches_no_other_variable() {
        for name in ["PATH", "a.PATH", "acme.../PATH", "acme", ".PATH", "a_b.C", "acme.A=B", "../x.y"] {
            assert!(VaultEnvironment.resolve(name).await.is_err(), "{name}");
        }
    }

    #[tokio::test]
    async fn a_variable_is_a_secret_and_no_variable_is_none() {
        assert!(EnvironmentSecrets.resolve("PATH").await.is_ok());
        for name in ["DORMOUSE_NO_SUCH_VARIABLE", "", "A=B", "A\0"] {
            assert_eq!(EnvironmentSecrets.resolve(name).await, Err(SecretError::Missing(name.to_owned())));
        }
    }
}
