//! Which addresses are on the public internet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use reqwest::Url;

/// False for an address of this machine or network that is written as such. Names are judged when they are resolved.
pub(crate) fn is_reachable(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let literal = host.trim_start_matches('[').trim_end_matches(']');
    match literal.parse::<IpAddr>() {
        Ok(address) => is_public(address),
        Err(_) => {
            let host = host.trim_end_matches('.').to_ascii_lowercase();
            host != "localhost" && !host.ends_with(".localhost")
        }
    }
}

/// True if `address` is one of the public internet.
pub(crate) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [first, second, third, _] = address.octets();
    let is_shared = first == 100 && (64..128).contains(&second);
    let is_protocol = first == 192 && second == 0 && third == 0;
    let is_benchmark = first == 198 && (18..20).contains(&second);
    !(address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_documentation()
        || is_shared
        || is_protocol
        || is_benchmark
        || first == 0
        || first >= 224)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    if let Some(inner) = address.to_ipv4() {
        // `::` and `::1` are among them.
        return is_public_v4(inner);
    }
    let segments = address.segments();
    match segments {
        // What a network translates by rules of its own, and Teredo, which hides where it leads.
        [0x64, 0xff9b, 1, ..] | [0x2001, 0, ..] => false,
        // Translated and tunneled addresses of version 4.
        [0x64, 0xff9b, ..] => is_public_v4(v4(segments[6], segments[7])),
        [0x2002, high, low, ..] => is_public_v4(v4(high, low)),
        // Only this part is given out to the public; the rest of it is for documentation.
        [first, second, ..] => {
            let is_documentation = (first == 0x2001 && second == 0xdb8) || (first == 0x3fff && second < 0x1000);
            (0x2000..0x4000).contains(&first) && !is_documentation
        }
    }
}

fn v4(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from((u32::from(high) << 16) | u32::from(low))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_machine_and_network_are_not_public() {
        let reachable = |url: &str| is_reachable(&url.parse().expect("an address"));
        for url in ["https://example.com/", "http://93.184.216.34/", "http://[2606:2800:220:1::1]/"] {
            assert!(reachable(url), "{url}");
        }
        for url in [
            "http://127.0.0.1/",
            "http://2130706433/",
            "http://0x7f.1/",
            "http://0/",
            "http://localhost:9001/",
            "http://LOCALHOST./",
            "http://a.localhost/",
            "http://10.1.2.3/",
            "http://172.16.0.1/",
            "http://192.168.1.1/",
            "http://169.254.169.254/latest/meta-data",
            "http://169.254.170.2/",
            "http://100.64.0.1/",
            "http://224.0.0.1/",
            "http://255.255.255.255/",
            "http://[::1]/",
            "http://[::]/",
            "http://[::ffff:169.254.169.254]/",
            "http://[64:ff9b::a9fe:a9fe]/",
            "http://[64:ff9b:1:a9fe:a9:fe00:808:808]/",
            "http://[2001:0:7f00:1::808:808]/",
            "http://[2002:7f00:1::]/",
            "http://[2001:db8::1]/",
            "http://[3fff:fff::1]/",
            "http://[fd00:ec2::254]/",
            "http://[fe80::1]/",
        ] {
            assert!(!reachable(url), "{url}");
        }
    }
}
