//! How many requests the API server answered, by its own count: including those of programs that no client
//! layer sees, such as a kubelet or a controller.

use std::collections::BTreeMap;

use http::Request;

use super::{ControlPlane, ControlPlaneError};

/// A kind of request: verb, resource and result.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApiRequest {
    /// In capitals, as in the API server's metrics: `GET`, `LIST`, `WATCH`, `POST`, `PUT`, `PATCH`, `APPLY`,
    /// `DELETE`, `DELETECOLLECTION`.
    pub verb: String,
    /// The API group; empty for the core.
    pub group: String,
    /// The resource, in the plural.
    pub resource: String,
    /// The subresource; empty for the object itself.
    pub subresource: String,
    /// The status code.
    pub code: u16,
}

/// How often each kind of request was answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiRequests(BTreeMap<ApiRequest, u64>);

impl ControlPlane {
    /// The requests that the API server has answered since its start. A watch counts when it ends.
    pub async fn api_requests(&self) -> Result<ApiRequests, ControlPlaneError> {
        let request = Request::get("/metrics").body(Vec::new()).map_err(kube::Error::HttpError)?;
        ApiRequests::parse(&self.client()?.request_text(request).await?)
    }
}

impl ApiRequests {
    /// All, with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (&ApiRequest, u64)> {
        self.0.iter().map(|(request, count)| (request, *count))
    }

    /// How many of them match `is_one`.
    pub fn count(&self, is_one: impl Fn(&ApiRequest) -> bool) -> u64 {
        self.iter().filter(|(request, _)| is_one(request)).map(|(_, count)| count).sum()
    }

    /// How many of the resource changed something, or tried to.
    pub fn writes(&self, resource: &str) -> u64 {
        let reads = ["GET", "LIST", "WATCH"];
        self.count(|request| request.resource == resource && !reads.contains(&request.verb.as_str()))
    }

    /// The difference since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = |request| earlier.0.get(request).copied().unwrap_or(0);
        let added =
            self.0.iter().map(|(request, count)| (request.clone(), count.saturating_sub(before(request))));
        Self(added.filter(|(_, count)| *count > 0).collect())
    }

    fn parse(metrics: &str) -> Result<Self, ControlPlaneError> {
        let mut counts = BTreeMap::new();
        for line in metrics.lines() {
            let Some(rest) = line.strip_prefix("apiserver_request_total{") else { continue };
            let (labels, count) =
                rest.rsplit_once("} ").ok_or_else(|| ControlPlaneError::Metric { line: line.to_owned() })?;
            *counts.entry(request(labels)).or_insert(0) +=
                whole(count).ok_or_else(|| ControlPlaneError::Metric { line: line.to_owned() })?;
        }
        Ok(Self(counts))
    }
}

/// Reads `code="200",group="",resource="pods",…`. No relevant value contains a quote or a comma.
fn request(labels: &str) -> ApiRequest {
    let mut request = ApiRequest::default();
    for (key, value) in labels.split("\",").filter_map(|label| label.split_once("=\"")) {
        let value = value.trim_end_matches('"').to_owned();
        match key {
            "verb" => request.verb = value,
            "group" => request.group = value,
            "resource" => request.resource = value,
            "subresource" => request.subresource = value,
            "code" => request.code = value.parse().unwrap_or(0),
            _ => {}
        }
    }
    request
}

/// Reads `17` and also `1.7e+07`, the form of large numbers.
fn whole(count: &str) -> Option<u64> {
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?;
    let Some((mantissa, exponent)) = count.split_once("e+") else { return digits(count) };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let places: usize = exponent.parse().ok()?;
    let zeros = places.checked_sub(fraction.len())?;
    digits(&format!("{whole}{fraction}{}", "0".repeat(zeros)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const METRICS: &str = r#"# HELP apiserver_request_total Counter of apiserver requests
# TYPE apiserver_request_total counter
apiserver_request_total{code="201",component="apiserver",dry_run="",group="",resource="configmaps",scope="resource",subresource="",verb="POST",version="v1"} 3
apiserver_request_total{code="201",component="apiserver",dry_run="All",group="",resource="configmaps",scope="resource",subresource="",verb="POST",version="v1"} 1
apiserver_request_total{code="200",component="apiserver",dry_run="",group="apps",resource="deployments",scope="namespace",subresource="status",verb="LIST",version="v1"} 1.2345e+07
apiserver_request_duration_seconds_sum{verb="POST"} 0.1
"#;

    #[test]
    fn requests_are_counted_by_what_they_did() {
        let requests = ApiRequests::parse(METRICS).unwrap();
        assert_eq!(requests.writes("configmaps"), 4);
        assert_eq!(requests.count(|request| request.subresource == "status"), 12_345_000);
        assert_eq!(requests.iter().count(), 2);
    }

    #[test]
    fn what_came_in_addition_is_the_difference() {
        let before = ApiRequests::parse(METRICS).unwrap();
        let after = ApiRequests::parse(&METRICS.replace("} 3\n", "} 5\n")).unwrap();
        assert_eq!(after.since(&before).count(|_| true), 2);
        assert_eq!(before.since(&before), ApiRequests::default());
    }

    #[test]
    fn a_line_without_a_number_is_named() {
        let error = ApiRequests::parse("apiserver_request_total{verb=\"GET\"} many").unwrap_err();
        assert_eq!(
            error.to_string(),
            r#"the metric "apiserver_request_total{verb=\"GET\"} many" has no number at its end"#
        );
    }
}
