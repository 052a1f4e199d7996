//! Where the gateway asks for signatures, and where it leaves callers to the function.

use dormouse_http::Authorization;
use serde_json::json;

use crate::template::Template;
use crate::text;

/// Signatures are for the gateway to check, keys for the function: the template tells both of the same setting.
#[test]
fn the_gateway_asks_for_signatures_where_the_function_takes_its_word() {
    let template = Template::read();
    let setting = json!({ "Ref": "InboundAuthorization" });
    // Whoever cancels has to know whether callers have tenants.
    for function in ["InboundFunction", "SignalFunction"] {
        let variables = &template.resource(function)["Properties"]["Environment"]["Variables"];
        assert_eq!(variables["DORMOUSE_AUTHORIZATION"], setting, "{function}");
    }
    let asked = &template.resource("DefaultRoute")["Properties"]["AuthorizationType"];
    assert_eq!(*asked, json!({ "Fn::If": ["CallersSign", "AWS_IAM", "NONE"] }));
    assert_eq!(*template.condition("CallersSign"), json!({ "Fn::Equals": [setting, "AWS_IAM"] }));
    let words = template.parameter("InboundAuthorization")["AllowedValues"].as_array().unwrap();
    let settings: Vec<_> = words.iter().map(|word| Authorization::parse(word.as_str().unwrap())).collect();
    assert_eq!(settings, [Authorization::Keys, Authorization::AwsIam, Authorization::None].map(Some));
}

/// Who has a key or a token signs nothing, and is told by these paths where to get one.
#[test]
fn the_gateway_asks_for_no_signature_where_the_function_asks_for_keys_or_for_nothing() {
    let template = Template::read();
    let routes = template.made().into_iter().map(|name| template.resource(name));
    let routes = routes.filter(|resource| resource["Type"] == "AWS::ApiGatewayV2::Route");
    let open: Vec<_> = routes
        .map(|route| &route["Properties"])
        .filter(|route| route["AuthorizationType"] == "NONE" && route["ApiId"] == json!({ "Ref": "Api" }))
        .map(|route| text(route, "RouteKey"))
        .collect();
    for path in [
        "/.well-known/agent-card.json",
        "/.well-known/oauth-protected-resource",
        "/a2a",
        "/console",
        "/console/{proxy+}",
        "/docs",
        "/health",
        "/openapi.json",
        "/v1",
        "/v1/{proxy+}",
        "/version",
    ] {
        assert!(open.contains(&format!("ANY {path}").as_str()), "{path}: {open:?}");
    }
}
