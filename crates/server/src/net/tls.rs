//! TLS by rustls: the server's certificate, and the session of one connection.
//!
//! A session transfers bytes between a non-blocking socket and a connection, like a plain socket.
//! The difference is that a transfer in one direction may need the socket in both directions. Knows
//! nothing of HTTP. The owner of a connection owns its session. The configuration is shared and
//! never changes.

use crate::net::socket::{self, Transfer};
pub use rustls::ServerConfig as TlsConfig;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection};
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// The first byte of a TLS connection: a record of type handshake.
pub const HANDSHAKE_RECORD: u8 = 22;

/// Reads a certificate chain and its key, both PEM. The error is one line that names the file.
pub fn read_config(certificate: &str, key: &str) -> Result<Arc<ServerConfig>, String> {
    for path in [certificate, key] {
        // Opening a pipe waits for a writer, and the supervisor must not wait at SIGHUP.
        if std::fs::metadata(path).is_ok_and(|file| !file.is_file() && !file.is_dir()) {
            return Err(format!("{path}: it is not a regular file"));
        }
    }
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .and_then(|chain| if chain.is_empty() { Err(PemError::NoItemsFound) } else { Ok(chain) })
        .map_err(|error| describe(certificate, error, "a certificate (BEGIN CERTIFICATE)"))?;
    let secret = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| describe(key, error, "an unencrypted private key (BEGIN PRIVATE KEY)"))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                format!("{key}: the key does not belong to the certificate in {certificate}")
            }
            other => format!("{certificate} with {key}: {other}"),
        })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn describe(path: &str, error: PemError, wanted: &str) -> String {
    match error {
        PemError::Io(error) => match error.kind() {
            ErrorKind::NotFound => format!("{path}: no such file"),
            ErrorKind::PermissionDenied => format!("{path}: permission denied"),
            _ => format!("{path}: {error}"),
        },
        PemError::NoItemsFound => format!("{path}: it must hold {wanted} in PEM form"),
        _ => format!("{path}: it is not in PEM form"),
    }
}

pub struct TlsSession {
    session: ServerConnection,
}

impl TlsSession {
    pub fn new(config: &Arc<ServerConfig>) -> Result<Self, rustls::Error> {
        Ok(Self { session: ServerConnection::new(Arc::clone(config))? })
    }

    /// Continues the handshake. `Moved` means that it is complete.
    pub fn shake_hands(&mut self, socket: BorrowedFd) -> Transfer {
        loop {
            match self.flush(socket) {
                Transfer::Moved(_) if !self.session.is_handshaking() => return Transfer::Moved(0),
                Transfer::Moved(_) => {}
                other => return other,
            }
            match self.pull(socket) {
                Transfer::Moved(_) => {}
                other => return other,
            }
        }
    }

    /// Decrypts into `space`. Only `WouldBlock` means that the socket is empty, because the session
    /// may hold decrypted bytes.
    pub fn receive(&mut self, socket: BorrowedFd, space: &mut [u8]) -> Transfer {
        loop {
            match self.session.reader().read(space) {
                // close_notify: the client may still read.
                Ok(0) => return Transfer::Ended,
                Ok(count) => return Transfer::Moved(count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return Transfer::Ended,
            }
            match self.pull(socket) {
                Transfer::Moved(_) => {
                    // If the answer to a key update does not fit, it goes with the next response.
                    let _ = self.flush(socket);
                }
                other => return other,
            }
        }
    }

    /// Accepts some of `bytes` once the socket has accepted the bytes before them. The caller
    /// flushes afterwards.
    pub fn send(&mut self, socket: BorrowedFd, bytes: &[u8]) -> Transfer {
        match self.flush(socket) {
            Transfer::Moved(_) => match self.session.writer().write(bytes) {
                Ok(count) if count > 0 => Transfer::Moved(count),
                _ => Transfer::Ended,
            },
            other => other,
        }
    }

    /// Sends the encrypted bytes to the socket. `Moved` means all of them.
    pub fn flush(&mut self, socket: BorrowedFd) -> Transfer {
        let mut moved = 0;
        while self.session.wants_write() {
            match self.session.write_tls(&mut Wire(socket)) {
                Ok(0) => return Transfer::Ended,
                Ok(count) => moved += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Transfer::WouldBlock,
                Err(_) => return Transfer::Ended,
            }
        }
        Transfer::Moved(moved)
    }

    /// Sends close_notify, which proves to the client that it has received everything. Call again
    /// after `WouldBlock`.
    pub fn close(&mut self, socket: BorrowedFd) -> Transfer {
        self.session.send_close_notify();
        self.flush(socket)
    }

    /// One read of the socket, decrypted.
    fn pull(&mut self, socket: BorrowedFd) -> Transfer {
        match self.session.read_tls(&mut Wire(socket)) {
            Ok(0) => Transfer::Ended,
            Ok(count) => match self.session.process_new_packets() {
                Ok(_) => Transfer::Moved(count),
                Err(_) => {
                    // Send the alert with the reason.
                    let _ = self.flush(socket);
                    Transfer::Ended
                }
            },
            Err(error) if error.kind() == ErrorKind::WouldBlock => Transfer::WouldBlock,
            Err(_) => Transfer::Ended,
        }
    }
}

/// The socket as rustls reads and writes it, without waiting.
struct Wire<'a>(BorrowedFd<'a>);

impl Read for Wire<'_> {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        to_io(socket::receive(self.0, space))
    }
}

impl Write for Wire<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        to_io(socket::send(self.0, bytes, false))
    }

    fn write_vectored(&mut self, pieces: &[IoSlice]) -> io::Result<usize> {
        to_io(socket::send_vectored(self.0, pieces))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn to_io(transfer: Transfer) -> io::Result<usize> {
    match transfer {
        Transfer::Moved(count) => Ok(count),
        Transfer::Ended => Ok(0),
        Transfer::WouldBlock | Transfer::Unfinished => Err(ErrorKind::WouldBlock.into()),
    }
}
