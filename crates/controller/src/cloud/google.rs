//! Projects of Google's cloud, as configured by flags.

use std::path::PathBuf;
use std::sync::Arc;

use tenure_cloud::gcp::{Endpoints, Gcp, Metadata, TokenSource, Tokens};
use tenure_cloud::{Cloud, CloudError};
use tenure_handles::SystemClock;

use super::driver::{CloudSettings, Clouds};

/// Projects of Google's cloud.
struct Google {
    endpoints: Endpoints,
    tokens: TokenSource,
}

impl Clouds for Google {
    fn cloud(&self, project: &str) -> Result<Arc<dyn Cloud>, CloudError> {
        let tokens = Tokens::new(self.tokens.clone(), Arc::new(SystemClock));
        Ok(Arc::new(Gcp::new(project, self.endpoints.clone(), tokens)?))
    }
}

impl CloudSettings {
    /// Google's cloud: its Compute API at another address if given, with tokens from a file, otherwise from the
    /// metadata server at `metadata_host`.
    pub fn google(endpoint: Option<&str>, token_file: Option<PathBuf>, metadata_host: &str) -> Self {
        let usual = Endpoints::default();
        let compute = endpoint.unwrap_or(&usual.compute).trim_end_matches('/').to_owned();
        let tokens = match token_file {
            Some(file) => TokenSource::File(file),
            None => TokenSource::Metadata(Metadata::at(metadata_host)),
        };
        Self::new(Arc::new(Google { endpoints: Endpoints { compute, ..usual }, tokens }))
    }
}
