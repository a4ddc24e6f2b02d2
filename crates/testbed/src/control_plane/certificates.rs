//! The certificate authority of one control plane.
//!
//! Servers and clients of a control plane trust this one authority. A client certificate identifies a user:
//! the user is its common name, the groups are its organizations.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};

use super::ControlPlaneError;

/// A certificate and its key, both as PEM.
#[derive(Clone)]
pub(super) struct Certificate {
    pub(super) certificate: String,
    pub(super) key: String,
}

impl std::fmt::Debug for Certificate {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a certificate and its key")
    }
}

/// The certificate of an authority, in both formats that clients use.
#[derive(Clone, Debug)]
pub(super) struct RootCertificate {
    pub(super) pem: String,
    pub(super) der: Vec<u8>,
}

/// Signs the certificates of one control plane, and writes them where its parts find them.
#[derive(Debug)]
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    root: RootCertificate,
    directory: PathBuf,
}

impl Authority {
    /// A new one, with its files in `directory/certificates`.
    pub(super) fn create(directory: &Path) -> Result<Self, ControlPlaneError> {
        let directory = directory.join("certificates");
        std::fs::create_dir_all(&directory).map_err(|source| ControlPlaneError::File {
            act: "creating",
            path: directory.clone(),
            source,
        })?;
        let mut params = named("tenure-testbed", &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyEncipherment,
        ];
        let key = KeyPair::generate()?;
        let root = params.self_signed(&key)?;
        let root = RootCertificate { pem: root.pem(), der: root.der().to_vec() };
        let authority = Self { root, directory, issuer: Issuer::new(params, key) };
        let key = authority.issuer.key().serialize_pem();
        let certificate = Certificate { certificate: authority.root.pem.clone(), key };
        authority.write("authority", &certificate)?;
        Ok(authority)
    }

    /// Its own certificate.
    pub(super) fn root(&self) -> RootCertificate {
        self.root.clone()
    }

    /// The file of its own certificate.
    pub(super) fn certificate(&self) -> PathBuf {
        self.directory.join("authority.crt")
    }

    /// The file of its own key.
    pub(super) fn key(&self) -> PathBuf {
        self.directory.join("authority.key")
    }

    /// A certificate for a user in groups.
    pub(super) fn client(&self, user: &str, groups: &[&str]) -> Result<Certificate, ControlPlaneError> {
        if groups.len() > ORGANIZATIONS {
            return Err(ControlPlaneError::TooManyGroups {
                user: user.to_owned(),
                groups: groups.join(", "),
            });
        }
        let mut params = named(user, groups);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(&params)
    }

    /// Writes a certificate for a user in groups to `NAME.crt` and its key to `NAME.key`.
    pub(super) fn write_client(
        &self,
        name: &str,
        user: &str,
        groups: &[&str],
    ) -> Result<(PathBuf, PathBuf), ControlPlaneError> {
        self.write(name, &self.client(user, groups)?)
    }

    /// Writes a certificate for a server with these names and addresses to `NAME.crt` and its key to `NAME.key`.
    pub(super) fn write_server(
        &self,
        name: &str,
        names: &[String],
    ) -> Result<(PathBuf, PathBuf), ControlPlaneError> {
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = named(name, &[]).distinguished_name;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.write(name, &self.sign(&params)?)
    }

    /// Writes a key to `NAME.key` and its public half to `NAME.pub`; no certificate belongs to it.
    pub(super) fn write_key(&self, name: &str) -> Result<(PathBuf, PathBuf), ControlPlaneError> {
        let paths = (self.directory.join(format!("{name}.pub")), self.directory.join(format!("{name}.key")));
        let key = KeyPair::generate()?;
        write(&paths.0, &key.public_key_pem())?;
        write(&paths.1, &key.serialize_pem())?;
        Ok(paths)
    }

    fn sign(&self, params: &CertificateParams) -> Result<Certificate, ControlPlaneError> {
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Certificate { certificate, key: key.serialize_pem() })
    }

    fn write(&self, name: &str, certificate: &Certificate) -> Result<(PathBuf, PathBuf), ControlPlaneError> {
        let paths = (self.directory.join(format!("{name}.crt")), self.directory.join(format!("{name}.key")));
        write(&paths.0, &certificate.certificate)?;
        write(&paths.1, &certificate.key)?;
        Ok(paths)
    }
}

/// How many organizations rcgen can write into a name. It holds one value per attribute type; the type
/// *organization* can be named by its word and by its number.
const ORGANIZATIONS: usize = 2;

fn named(common: &str, organizations: &[&str]) -> CertificateParams {
    let mut name = DistinguishedName::new();
    let types = [DnType::OrganizationName, DnType::CustomDnType(vec![2, 5, 4, 10])];
    for (kind, organization) in types.into_iter().zip(organizations) {
        name.push(kind, *organization);
    }
    name.push(DnType::CommonName, common);
    let mut params = CertificateParams::default();
    params.distinguished_name = name;
    params
}

/// Writes a file.
pub(super) fn write(path: &Path, text: &str) -> Result<(), ControlPlaneError> {
    std::fs::write(path, text).map_err(|source| ControlPlaneError::File {
        act: "writing",
        path: path.into(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_groups_than_a_certificate_takes_are_refused_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::create(directory.path()).unwrap();
        assert!(authority.client("somebody", &["a", "b"]).is_ok());
        assert_eq!(
            authority.client("somebody", &["a", "b", "c"]).unwrap_err().to_string(),
            "a client certificate takes two groups, and somebody is to be in a, b, c"
        );
    }

    #[test]
    fn keys_and_certificates_are_files_beside_each_other() {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::create(directory.path()).unwrap();
        let (certificate, key) = authority.write_server("etcd", &["127.0.0.1".to_owned()]).unwrap();
        assert!(std::fs::read_to_string(certificate).unwrap().starts_with("-----BEGIN CERTIFICATE-----"));
        assert!(std::fs::read_to_string(key).unwrap().starts_with("-----BEGIN PRIVATE KEY-----"));
        assert!(authority.certificate().is_file() && authority.key().is_file());
    }
}
