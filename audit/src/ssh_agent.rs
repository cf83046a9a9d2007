//! Signs with an Ed25519 key of an SSH agent, so that the private key is not stored in a file
//! (draft-ietf-sshm-ssh-agent).

use std::{
    env,
    io::{self, Read as _, Write as _},
    os::unix::net::UnixStream,
    path::PathBuf,
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use ed25519_dalek::VerifyingKey;
use sha2::{Digest as _, Sha256};
use thiserror::Error;

/// The variable that names the agent's socket.
const SOCKET_VARIABLE: &str = "SSH_AUTH_SOCK";

/// The maximum length of an agent's response: 256 KiB, as in OpenSSH.
const MAX_RESPONSE_BYTES: usize = 256 * 1024;

/// The timeout of a response: 5 s.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

const REQUEST_IDENTITIES: u8 = 11;
const IDENTITIES_ANSWER: u8 = 12;
const SIGN_REQUEST: u8 = 13;
const SIGN_RESPONSE: u8 = 14;
const ED25519: &[u8] = b"ssh-ed25519";

/// An SSH agent cannot or will not sign.
#[derive(Debug, Error)]
pub enum SshAgentError {
    /// The variable `SSH_AUTH_SOCK` is not set.
    #[error("no SSH agent is known: the variable SSH_AUTH_SOCK is not set")]
    NoSocket,
    /// The connection to the agent failed, or timed out after 5 s.
    #[error("cannot talk to the SSH agent")]
    Connection(#[from] io::Error),
    /// The agent holds no key with the fingerprint.
    #[error("the SSH agent has no key with this fingerprint; `ssh-add -l` lists its keys")]
    NoKey,
    /// The key with the fingerprint is not an Ed25519 key.
    #[error("the key in the SSH agent is not an Ed25519 key")]
    OtherKeyType,
    /// The agent refused the request.
    #[error("the SSH agent refuses; it may be locked, or ask for a confirmation")]
    Refused,
    /// The signature is not an Ed25519 signature.
    #[error("the SSH agent's signature is not an Ed25519 signature")]
    OtherSignatureType,
    /// A response does not follow the protocol, or is longer than 256 KiB.
    #[error("the SSH agent's response does not follow its protocol")]
    Malformed,
    /// A message to the agent, or a part of it, has 4 GiB or more.
    #[error("the message is too long for the SSH agent")]
    TooLong,
}

/// A key that an agent holds.
#[derive(Debug)]
pub(super) struct AgentKey {
    socket: PathBuf,
    /// The public key in SSH's format.
    blob: Vec<u8>,
    pub(super) public: VerifyingKey,
}

impl AgentKey {
    /// Finds the key with a fingerprint, such as `SHA256:…` from `ssh-add -l`, in the agent of this process.
    pub(super) fn find(fingerprint: &str) -> Result<Self, SshAgentError> {
        let socket = env::var_os(SOCKET_VARIABLE).ok_or(SshAgentError::NoSocket)?;
        Self::find_at(socket.into(), fingerprint)
    }

    fn find_at(socket: PathBuf, fingerprint: &str) -> Result<Self, SshAgentError> {
        let response = request(&socket, &[REQUEST_IDENTITIES], IDENTITIES_ANSWER)?;
        let mut fields = Fields(&response);
        for _ in 0..fields.read_u32()? {
            let (blob, _comment) = (fields.read_string()?, fields.read_string()?);
            if format!("SHA256:{}", STANDARD_NO_PAD.encode(Sha256::digest(blob))) != fingerprint {
                continue;
            }
            let mut key = Fields(blob);
            let (kind, public) = (key.read_string()?, key.read_string());
            if kind != ED25519 {
                return Err(SshAgentError::OtherKeyType);
            }
            let public: [u8; 32] = public?.try_into().map_err(|_length| SshAgentError::Malformed)?;
            let public = VerifyingKey::from_bytes(&public).map_err(|_point| SshAgentError::Malformed)?;
            return Ok(Self { blob: blob.to_vec(), socket, public });
        }
        Err(SshAgentError::NoKey)
    }

    /// Signs a message.
    pub(super) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, SshAgentError> {
        let mut message_to_agent = vec![SIGN_REQUEST];
        for text in [&self.blob, message] {
            message_to_agent.extend(length_of(text)?);
            message_to_agent.extend_from_slice(text);
        }
        // No flags.
        message_to_agent.extend([0; 4]);
        let response = request(&self.socket, &message_to_agent, SIGN_RESPONSE)?;
        let mut signature = Fields(Fields(&response).read_string()?);
        if signature.read_string()? != ED25519 {
            return Err(SshAgentError::OtherSignatureType);
        }
        Ok(signature.read_string()?.to_vec())
    }
}

/// Sends a message to an agent, and returns the payload of its response, which must be of this kind.
fn request(socket: &PathBuf, message: &[u8], kind: u8) -> Result<Vec<u8>, SshAgentError> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
    stream.set_write_timeout(Some(RESPONSE_TIMEOUT))?;
    stream.write_all(&length_of(message)?)?;
    stream.write_all(message)?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = usize::try_from(u32::from_be_bytes(length)).map_err(|_overflow| SshAgentError::Malformed)?;
    if length == 0 || length > MAX_RESPONSE_BYTES {
        return Err(SshAgentError::Malformed);
    }
    let mut response = vec![0; length];
    stream.read_exact(&mut response)?;
    if response.remove(0) != kind {
        return Err(SshAgentError::Refused);
    }
    Ok(response)
}

fn length_of(text: &[u8]) -> Result<[u8; 4], SshAgentError> {
    Ok(u32::try_from(text.len()).map_err(|_overflow| SshAgentError::TooLong)?.to_be_bytes())
}

/// The fields of a message (RFC 4251, section 5).
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn read_u32(&mut self) -> Result<u32, SshAgentError> {
        let (number, rest) = self.0.split_first_chunk().ok_or(SshAgentError::Malformed)?;
        self.0 = rest;
        Ok(u32::from_be_bytes(*number))
    }

    fn read_string(&mut self) -> Result<&'a [u8], SshAgentError> {
        let length = usize::try_from(self.read_u32()?).map_err(|_overflow| SshAgentError::Malformed)?;
        let (string, rest) = self.0.split_at_checked(length).ok_or(SshAgentError::Malformed)?;
        self.0 = rest;
        Ok(string)
    }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::net::UnixListener, thread};

    use ed25519_dalek::{Signer as _, SigningKey};

    use super::*;

    fn texts(texts: &[&[u8]]) -> Vec<u8> {
        texts.iter().flat_map(|text| [&length_of(text).expect("short")[..], text].concat()).collect()
    }

    /// Starts an agent that sends these responses, one per connection.
    fn agent(answers: Vec<Vec<u8>>) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("agent");
        let listener = UnixListener::bind(&socket).expect("binds");
        thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().expect("a client");
                let mut length = [0; 4];
                stream.read_exact(&mut length).expect("a request");
                let mut request = vec![0; u32::from_be_bytes(length) as usize];
                stream.read_exact(&mut request).expect("a request");
                // The client may hang up before it has read everything.
                let _ = stream.write_all(&answer);
            }
        });
        (folder, socket)
    }

    fn framed(message: &[u8]) -> Vec<u8> {
        texts(&[message])
    }

    fn identities(blobs: &[&[u8]]) -> Vec<u8> {
        let mut message = vec![IDENTITIES_ANSWER];
        message.extend(u32::try_from(blobs.len()).expect("few").to_be_bytes());
        blobs.iter().for_each(|blob| message.extend(texts(&[blob, b"comment"])));
        framed(&message)
    }

    fn fingerprint(blob: &[u8]) -> String {
        format!("SHA256:{}", STANDARD_NO_PAD.encode(Sha256::digest(blob)))
    }

    #[test]
    fn a_key_is_found_by_its_fingerprint_and_signs() {
        let key = SigningKey::from_bytes(&[7; 32]);
        let blob = texts(&[ED25519, key.verifying_key().as_bytes()]);
        let rsa = texts(&[b"ssh-rsa", b"x"]);
        let signature = key.sign(b"message").to_bytes();
        let signed = [&[SIGN_RESPONSE][..], &texts(&[&texts(&[ED25519, &signature])])].concat();
        let (_folder, socket) = agent(vec![identities(&[&rsa, &blob]), framed(&signed)]);
        let found = AgentKey::find_at(socket, &fingerprint(&blob)).expect("found");
        assert_eq!(found.public, key.verifying_key());
        assert_eq!(found.sign(b"message").expect("signs"), signature);
    }

    #[test]
    fn hostile_and_unhelpful_agents_are_refused() {
        let rsa = texts(&[b"ssh-rsa", b"x"]);
        for answer in [
            identities(&[]),
            identities(&[&rsa]),
            identities(&[b"\0\0\0\xff"]),
            framed(&[5]),
            framed(&[IDENTITIES_ANSWER]),
            framed(&[IDENTITIES_ANSWER, 0, 0, 0, 9]),
            vec![0xff; 4],
            vec![0; 4],
            Vec::new(),
        ] {
            let (_folder, socket) = agent(vec![answer.clone()]);
            assert!(AgentKey::find_at(socket, &fingerprint(&rsa)).is_err(), "{answer:?}");
        }
        assert!(AgentKey::find_at("/nonexistent/agent".into(), "SHA256:x").is_err());
    }
}
