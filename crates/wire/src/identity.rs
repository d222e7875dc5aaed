//! Who a node is: a key, a certificate from the cluster's authority, and, at the node that made the cluster,
//! the authority's own key. A directory with fixed file names; keys are readable by their owner only.

use crate::name::{NameError, NodeName};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ED25519, PublicKeyData, SignatureAlgorithm,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use time::{Duration, OffsetDateTime};

/// What follows the node's name in the subject alternative name of its certificate.
pub const SAN_SUFFIX: &str = ".node.pando";
/// Bytes of a raw Ed25519 public key.
pub const PUBLIC_KEY: usize = 32;

const CA_CERT: &str = "ca.pem";
const CA_KEY: &str = "ca.key";
const NODE_CERT: &str = "node.pem";
const NODE_KEY: &str = "node.key";
const CLUSTER: &str = "cluster";
/// Clocks of two machines may differ by this much when a certificate is new.
const BACKDATED: Duration = Duration::hours(24);
const CA_VALID: Duration = Duration::days(20 * 365);
const NODE_VALID: Duration = Duration::days(5 * 365);

/// What can go wrong with an identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// There is none.
    #[error("{} has no identity: make a cluster with `pando init` or join one with `pando join TOKEN`", .0.display())]
    Missing(PathBuf),
    /// There is one already.
    #[error("{} already has an identity (node {node} of cluster {cluster}): use another --state, or remove it first", dir.display())]
    Exists {
        /// Where.
        dir: PathBuf,
        /// The node's name.
        node: String,
        /// The cluster's name.
        cluster: String,
    },
    /// A file could not be read or written.
    #[error("{}: {cause}", file.display())]
    File {
        /// Which.
        file: PathBuf,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
    /// A file's contents make no sense.
    #[error("{} is damaged ({why}): restore it, or remove the directory and join again", file.display())]
    Damaged {
        /// Which.
        file: PathBuf,
        /// Why.
        why: String,
    },
    /// A bad name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Only the node that has the authority's key can admit others.
    #[error("node {0} does not hold the cluster's key: ask the node where `pando init` was run")]
    NotAuthority(NodeName),
    /// Making a key or certificate failed.
    #[error("making a certificate failed: {0}")]
    Certificate(#[from] rcgen::Error),
    /// TLS refused what we have.
    #[error("this node's certificate can't be used for TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// A key of the wrong length.
    #[error("a public key has {0} bytes; 32 expected")]
    KeyLength(usize),
}

/// A node's identity, in memory.
pub struct Identity {
    /// The node.
    pub node: NodeName,
    /// The cluster.
    pub cluster: NodeName,
    pub(crate) ca_cert: CertificateDer<'static>,
    pub(crate) node_cert: CertificateDer<'static>,
    pub(crate) node_key: PrivateKeyDer<'static>,
    ca_key: Option<KeyPair>,
}

/// A key that has no certificate yet: what a joining machine makes.
pub struct NewKey(KeyPair);

impl NewKey {
    /// Makes one.
    pub fn generate() -> Result<Self, IdentityError> {
        Ok(NewKey(KeyPair::generate_for(&PKCS_ED25519)?))
    }

    /// The half that may be shown.
    pub fn public(&self) -> Vec<u8> {
        self.0.public_key_raw().to_vec()
    }
}

/// A public key that came over the wire.
struct RawPublic<'a>(&'a [u8]);

impl PublicKeyData for RawPublic<'_> {
    fn der_bytes(&self) -> &[u8] {
        self.0
    }
    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ED25519
    }
}

impl Identity {
    /// Reads the identity in `dir`.
    pub fn load(dir: &Path) -> Result<Self, IdentityError> {
        if !dir.join(NODE_CERT).exists() {
            return Err(IdentityError::Missing(dir.to_owned()));
        }
        let cluster_file = dir.join(CLUSTER);
        let text = fs::read_to_string(&cluster_file).map_err(at(&cluster_file))?;
        let cluster = NodeName::parse(text.trim())?;
        let ca_cert = read_cert(&dir.join(CA_CERT))?;
        let node_cert = read_cert(&dir.join(NODE_CERT))?;
        let key_file = dir.join(NODE_KEY);
        let node_key = PrivateKeyDer::from_pem_file(&key_file).map_err(|e| damaged(&key_file, &e))?;
        let named = crate::peer_name(std::slice::from_ref(&node_cert));
        let node = named.ok_or_else(|| damaged(&dir.join(NODE_CERT), &"no node name in it"))?;
        let ca_file = dir.join(CA_KEY);
        let ca_key = match fs::read_to_string(&ca_file) {
            Ok(pem) => Some(KeyPair::from_pem(&pem).map_err(|e| damaged(&ca_file, &e))?),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
            Err(e) => return Err(at(&ca_file)(e)),
        };
        Ok(Identity { node: NodeName::parse(&node)?, cluster, ca_cert, node_cert, node_key, ca_key })
    }

    /// Makes a cluster and its first node, in `dir`.
    pub fn create_cluster(dir: &Path, cluster: &NodeName, node: &NodeName) -> Result<Self, IdentityError> {
        refuse_existing(dir)?;
        let ca_key = KeyPair::generate_for(&PKCS_ED25519)?;
        let ca_cert = ca_params(cluster)?.self_signed(&ca_key)?;
        let key = NewKey::generate()?;
        let issuer = Issuer::new(ca_params(cluster)?, &ca_key);
        let cert = node_params(node)?.signed_by(&RawPublic(&key.public()), &issuer)?;
        make_dir(dir)?;
        write_new(&dir.join(CA_KEY), ca_key.serialize_pem().as_bytes(), 0o600)?;
        Self::store(dir, cluster, &key, ca_cert.der(), cert.der())
    }

    /// Whether this node can admit others.
    pub fn is_authority(&self) -> bool {
        self.ca_key.is_some()
    }

    /// Signs a certificate for `node`, which holds the private half of `public`. Gives the certificate in DER.
    pub fn issue(&self, node: &NodeName, public: &[u8]) -> Result<Vec<u8>, IdentityError> {
        let Some(ca_key) = &self.ca_key else {
            return Err(IdentityError::NotAuthority(self.node.clone()));
        };
        if public.len() != PUBLIC_KEY {
            return Err(IdentityError::KeyLength(public.len()));
        }
        let issuer = Issuer::new(ca_params(&self.cluster)?, ca_key);
        Ok(node_params(node)?.signed_by(&RawPublic(public), &issuer)?.der().to_vec())
    }

    /// Keeps what a join brought: our key, the certificate for it and the authority's certificate.
    pub fn accept(
        dir: &Path,
        cluster: &NodeName,
        key: &NewKey,
        ca_der: &[u8],
        cert_der: &[u8],
    ) -> Result<Self, IdentityError> {
        refuse_existing(dir)?;
        make_dir(dir)?;
        Self::store(dir, cluster, key, &CertificateDer::from(ca_der), &CertificateDer::from(cert_der))
    }

    /// The authority's certificate in DER.
    pub fn ca_der(&self) -> &[u8] {
        &self.ca_cert
    }

    /// SHA-256 of the authority's certificate: what a token carries.
    pub fn fingerprint(&self) -> [u8; 32] {
        crate::tls::fingerprint(&self.ca_cert)
    }

    fn store(
        dir: &Path,
        cluster: &NodeName,
        key: &NewKey,
        ca: &CertificateDer<'_>,
        cert: &CertificateDer<'_>,
    ) -> Result<Self, IdentityError> {
        write_new(&dir.join(CLUSTER), format!("{cluster}\n").as_bytes(), 0o644)?;
        write_new(&dir.join(NODE_KEY), key.0.serialize_pem().as_bytes(), 0o600)?;
        write_new(&dir.join(CA_CERT), pem_of(ca).as_bytes(), 0o644)?;
        // Last: `load` takes the certificate's presence for the identity's.
        write_new(&dir.join(NODE_CERT), pem_of(cert).as_bytes(), 0o644)?;
        Self::load(dir)
    }
}

fn refuse_existing(dir: &Path) -> Result<(), IdentityError> {
    match Identity::load(dir) {
        Ok(id) => Err(IdentityError::Exists {
            dir: dir.to_owned(),
            node: id.node.to_string(),
            cluster: id.cluster.to_string(),
        }),
        Err(IdentityError::Missing(_)) => Ok(()),
        Err(other) => Err(other),
    }
}

fn ca_params(cluster: &NodeName) -> Result<CertificateParams, IdentityError> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("pando cluster {cluster}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    dated(&mut params, CA_VALID);
    Ok(params)
}

fn node_params(node: &NodeName) -> Result<CertificateParams, IdentityError> {
    let mut params = CertificateParams::new(vec![format!("{node}{SAN_SUFFIX}")])?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, node.as_str());
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    dated(&mut params, NODE_VALID);
    Ok(params)
}

fn dated(params: &mut CertificateParams, valid: Duration) {
    let now = OffsetDateTime::now_utc();
    params.not_before = now - BACKDATED;
    params.not_after = now + valid;
}

fn pem_of(cert: &CertificateDer<'_>) -> String {
    let mut out = String::from("-----BEGIN CERTIFICATE-----\n");
    let text = crate::token::base64(cert);
    for line in text.as_bytes().chunks(64) {
        out.push_str(&String::from_utf8_lossy(line));
        out.push('\n');
    }
    out.push_str("-----END CERTIFICATE-----\n");
    out
}

fn read_cert(file: &Path) -> Result<CertificateDer<'static>, IdentityError> {
    CertificateDer::from_pem_file(file).map_err(|e| damaged(file, &e))
}

fn make_dir(dir: &Path) -> Result<(), IdentityError> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(at(dir))
}

/// Writes a file that did not exist, so that its mode is ours from the first byte on.
fn write_new(file: &Path, bytes: &[u8], mode: u32) -> Result<(), IdentityError> {
    // A file without its certificate is the rest of an attempt that was interrupted.
    let _ = fs::remove_file(file);
    let mut out = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(file).map_err(at(file))?;
    out.write_all(bytes).and_then(|()| out.sync_all()).map_err(at(file))
}

fn at(file: &Path) -> impl Fn(std::io::Error) -> IdentityError + '_ {
    move |cause| IdentityError::File { file: file.to_owned(), cause }
}

fn damaged(file: &Path, why: &dyn std::fmt::Display) -> IdentityError {
    IdentityError::Damaged { file: file.to_owned(), why: why.to_string() }
}
