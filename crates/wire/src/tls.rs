//! TLS 1.3 between members: each side shows a certificate of the cluster's authority. The host name plays no
//! part: a node is who its certificate says, wherever it is reached, and the SNI only says what the
//! connection is for.

use crate::identity::{Identity, IdentityError, SAN_SUFFIX};
use crate::version::ALPN;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, ServerConfig, SignatureScheme, version,
};
use std::sync::Arc;

/// The name of the node that a verified certificate belongs to.
pub fn peer_name(certs: &[CertificateDer<'_>]) -> Option<String> {
    let leaf = webpki::EndEntityCert::try_from(certs.first()?).ok()?;
    let mut names = leaf.valid_dns_names();
    let name = names.next()?.strip_suffix(SAN_SUFFIX)?.to_owned();
    // A certificate with several names is not one of ours: which of them would it be?
    (names.next().is_none() && crate::NodeName::parse(&name).is_ok()).then_some(name)
}

/// SHA-256 of a certificate.
pub fn fingerprint(cert: &[u8]) -> [u8; 32] {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, cert);
    let mut out = [0; 32];
    out.copy_from_slice(digest.as_ref());
    out
}

/// AES-128 first: pages of moving processes go through it, and it is the quickest where the CPU has AES.
fn provider() -> Arc<CryptoProvider> {
    let suites = vec![
        cipher_suite::TLS13_AES_128_GCM_SHA256,
        cipher_suite::TLS13_AES_256_GCM_SHA384,
        cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ];
    Arc::new(CryptoProvider { cipher_suites: suites, ..default_provider() })
}

fn roots(ca: &CertificateDer<'_>) -> Result<RootCertStore, Error> {
    let mut store = RootCertStore::empty();
    store.add(ca.clone().into_owned())?;
    Ok(store)
}

impl Identity {
    /// For connections we make: we show our certificate and demand one of our cluster. Compare
    /// [`peer_name`] with the node that was meant.
    pub fn client_config(&self) -> Result<Arc<ClientConfig>, IdentityError> {
        let verifier = ClusterVerifier { roots: roots(&self.ca_cert)?, provider: provider() };
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_auth_cert(vec![self.node_cert.clone()], self.node_key.clone_key())?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.resumption = rustls::client::Resumption::disabled();
        Ok(Arc::new(config))
    }

    /// For connections from members: their certificate is required.
    pub fn server_config(&self) -> Result<Arc<ServerConfig>, IdentityError> {
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(&self.ca_cert)?), provider())
            .build()
            .map_err(|e| Error::General(e.to_string()))?;
        let config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&version::TLS13])?
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![self.node_cert.clone()], self.node_key.clone_key())?;
        Ok(finished(config))
    }

    /// For machines that bring a token: they have no certificate yet, and get the authority's in the chain so
    /// that they can compare its fingerprint with the token's.
    pub fn join_server_config(&self) -> Result<Arc<ServerConfig>, IdentityError> {
        let chain = vec![self.node_cert.clone(), self.ca_cert.clone()];
        let config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&version::TLS13])?
            .with_no_client_auth()
            .with_single_cert(chain, self.node_key.clone_key())?;
        Ok(finished(config))
    }
}

/// No tickets: every connection proves both sides anew, so a removed member can't resume.
fn finished(mut config: ServerConfig) -> Arc<ServerConfig> {
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.send_tls13_tickets = 0;
    Arc::new(config)
}

/// For a machine that joins: it trusts the one authority with this fingerprint.
pub fn join_client_config(fingerprint: [u8; 32]) -> Result<Arc<ClientConfig>, Error> {
    let verifier = FingerprintVerifier { fingerprint, provider: provider() };
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

/// Chain and validity against the cluster's authority; the host name is not looked at.
#[derive(Debug)]
struct ClusterVerifier {
    roots: RootCertStore,
    provider: Arc<CryptoProvider>,
}

/// The same, with the authority taken from the chain when its fingerprint is the token's.
#[derive(Debug)]
struct FingerprintVerifier {
    fingerprint: [u8; 32],
    provider: Arc<CryptoProvider>,
}

fn verify_chain(
    leaf: &CertificateDer<'_>,
    roots: &RootCertStore,
    provider: &CryptoProvider,
    now: UnixTime,
) -> Result<ServerCertVerified, Error> {
    let parsed = ParsedCertificate::try_from(leaf)?;
    // Our authority signs nodes directly: no intermediates.
    verify_server_cert_signed_by_trust_anchor(
        &parsed,
        roots,
        &[],
        now,
        provider.signature_verification_algorithms.all,
    )?;
    if peer_name(std::slice::from_ref(leaf)).is_none() {
        return Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure));
    }
    Ok(ServerCertVerified::assertion())
}

macro_rules! tls13_signatures_only {
    () => {
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(Error::General("only TLS 1.3 is spoken here".into()))
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.provider.signature_verification_algorithms.supported_schemes()
        }
    };
}

impl ServerCertVerifier for ClusterVerifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        verify_chain(leaf, &self.roots, &self.provider, now)
    }

    tls13_signatures_only!();
}

impl ServerCertVerifier for FingerprintVerifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let ca = intermediates.iter().find(|cert| fingerprint(cert) == self.fingerprint);
        let ca = ca.ok_or(Error::InvalidCertificate(CertificateError::UnknownIssuer))?;
        verify_chain(leaf, &roots(ca)?, &self.provider, now)
    }

    tls13_signatures_only!();
}
