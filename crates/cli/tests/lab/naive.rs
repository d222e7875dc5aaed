//! A client that trusts everyone: how far does one get who does not care who answers?

use pando_wire::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use pando_wire::rustls::pki_types::pem::PemObject;
use pando_wire::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use pando_wire::rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme, crypto::aws_lc_rs};
use std::path::Path;
use std::sync::Arc;

#[derive(Debug)]
struct Trusting;

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// With the certificate in an identity's directory, or none.
pub fn config(identity: Option<&Path>) -> Arc<ClientConfig> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Trusting));
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(dir) => {
            let cert = CertificateDer::from_pem_file(dir.join("node.pem")).unwrap();
            let key = PrivateKeyDer::from_pem_file(dir.join("node.key")).unwrap();
            builder.with_client_auth_cert(vec![cert], key).unwrap()
        }
    };
    config.alpn_protocols = vec![pando_wire::version::ALPN.to_vec()];
    Arc::new(config)
}
