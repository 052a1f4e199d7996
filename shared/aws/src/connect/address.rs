//! Addresses of the services, without the rules of the SDK.
//!
//! By itself each client of the SDK finds its address by rules, with regular expressions, before its first request. Addresses in
//! the public regions, in China and in GovCloud follow from the name of the region; elsewhere the SDK's own way counts. The
//! list of AWS's partitions, which those rules need, is read all the same: a client of the SDK reads it when it is made.

use aws_smithy_runtime_api::client::endpoint::{
    EndpointFuture, EndpointResolverParams, ResolveEndpoint, SharedEndpointResolver,
};
use aws_smithy_types::endpoint::Endpoint;

/// Beginnings of the names of public regions.
const PUBLIC: [&str; 9] = ["us", "eu", "ap", "sa", "ca", "me", "af", "il", "mx"];

/// One address for all requests.
#[derive(Debug)]
struct FixedAddress(Endpoint);

impl ResolveEndpoint for FixedAddress {
    fn resolve_endpoint<'a>(&'a self, _: &'a EndpointResolverParams) -> EndpointFuture<'a> {
        EndpointFuture::ready(Ok(self.0.clone()))
    }
}

/// The resolver for the service with a host that begins with `host`: to `endpoint` where it is given, otherwise to the
/// address in `region`. `None` in a region of which only the SDK knows the addresses.
pub(super) fn resolver(host: &str, region: &str, endpoint: Option<&str>) -> Option<SharedEndpointResolver> {
    let url = match endpoint {
        Some(endpoint) => endpoint.to_owned(),
        None => format!("https://{host}.{region}.{}", suffix(region)?),
    };
    Some(SharedEndpointResolver::new(FixedAddress(Endpoint::builder().url(url).build())))
}

/// The address of the service with a host that begins with `host`, in a region of the public partition, of China or
/// GovCloud; elsewhere an endpoint has to be given.
pub(super) fn of(host: &str, region: &str) -> String {
    format!("https://{host}.{region}.{}", suffix(region).unwrap_or("amazonaws.com"))
}

/// The end of the hosts in `region`.
fn suffix(region: &str) -> Option<&'static str> {
    let (area, rest) = region.split_once('-')?;
    let is_plain = |place: &str| {
        place.split_once('-').is_some_and(|(direction, number)| {
            direction.bytes().all(|byte| byte.is_ascii_lowercase()) && number.parse::<u8>().is_ok()
        })
    };
    match (area, rest.strip_prefix("gov-")) {
        ("cn", None) if is_plain(rest) => Some("amazonaws.com.cn"),
        ("us", Some(place)) if is_plain(place) => Some("amazonaws.com"),
        (_, None) if PUBLIC.contains(&area) && is_plain(rest) => Some("amazonaws.com"),
        (_, None | Some(_)) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGIONS: [&str; 9] = [
        "us-east-1",
        "eu-central-1",
        "ap-southeast-5",
        "sa-east-1",
        "mx-central-1",
        "il-central-1",
        "cn-north-1",
        "us-gov-west-1",
        "ca-west-1",
    ];

    /// Compares the address of a service with what the SDK says.
    macro_rules! agrees {
        ($sdk:ident, $host:literal) => {
            for region in REGIONS {
                use $sdk::config::endpoint::{DefaultResolver, Params, ResolveEndpoint};
                let params = Params::builder().region(region).use_fips(false).use_dual_stack(false);
                let params = params.build().expect("parameters");
                let theirs = ResolveEndpoint::resolve_endpoint(&DefaultResolver::new(), &params).await;
                let theirs = theirs.expect("an endpoint");
                let ours = resolver($host, region, None).expect("an address");
                let ours = ours.resolve_endpoint(&EndpointResolverParams::new(())).await.expect("an endpoint");
                assert_eq!(ours.url(), theirs.url());
                assert!(!theirs.properties().contains_key("authSchemes"), "the address says how to sign");
            }
        };
    }

    #[tokio::test]
    async fn the_addresses_are_those_of_the_sdk() {
        agrees!(aws_sdk_dynamodb, "dynamodb");
        agrees!(aws_sdk_eventbridge, "events");
        agrees!(aws_sdk_scheduler, "scheduler");
        agrees!(aws_sdk_ssm, "ssm");
    }

    #[tokio::test]
    async fn a_given_endpoint_counts_anywhere() {
        let resolver = resolver("dynamodb", "moon-far-1", Some("http://127.0.0.1:8000")).expect("an address");
        let endpoint = resolver.resolve_endpoint(&EndpointResolverParams::new(())).await.expect("an endpoint");
        assert_eq!(endpoint.url(), "http://127.0.0.1:8000");
    }

    #[test]
    fn other_regions_are_left_to_the_sdk() {
        for region in ["us-iso-east-1", "eu-isoe-west-1", "eusc-de-east-1", "moon-far-1", "us", "us-east", "us-gov-iso"]
        {
            assert!(resolver("dynamodb", region, None).is_none(), "{region}");
        }
    }
}
