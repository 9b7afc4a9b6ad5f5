//! What no driver would send, and answers that drivers keep to themselves.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use pgwire::messages::PgWireFrontendMessage as Message;
use pgwire::messages::copy::{CopyData, CopyDone, CopyFail};
use pgwire::messages::extendedquery::{Bind, Close, Describe, Execute, Flush, Parse, Sync};
use pgwire::messages::simplequery::Query;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::fake::Server;

/// A client that speaks bytes.
struct Raw {
    stream: TcpStream,
    input: BytesMut,
}

impl Raw {
    async fn open(server: &Server) -> Raw {
        Raw { stream: TcpStream::connect(server.address).await.unwrap(), input: BytesMut::new() }
    }

    /// A client that has logged in.
    async fn login(server: &Server) -> Raw {
        let mut raw = Raw::open(server).await;
        raw.bytes(b"\0\0\0\x20\0\x03\0\0user\0root\0database\0dev\0\0").await;
        let answers = raw.until(b'Z').await;
        assert_eq!(tags(&answers), "RSSSKZ");
        raw
    }

    async fn bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    async fn send(&mut self, messages: impl IntoIterator<Item = Message>) {
        let mut out = BytesMut::new();
        messages.into_iter().for_each(|message| message.encode(&mut out).unwrap());
        self.bytes(&out).await;
    }

    /// The next answer. `None`: the server has closed the connection.
    async fn next(&mut self) -> Option<(char, Bytes)> {
        loop {
            if self.input.len() >= 5 {
                let length = (&self.input[1..5]).get_u32() as usize;
                if self.input.len() > length {
                    let frame = self.input.split_to(1 + length).freeze();
                    return Some((frame[0].into(), frame.slice(5..)));
                }
            }
            if self.stream.read_buf(&mut self.input).await.unwrap_or(0) == 0 {
                assert!(self.input.is_empty(), "the last message is cut");
                return None;
            }
        }
    }

    /// All answers up to one with this tag.
    async fn until(&mut self, tag: u8) -> Vec<(char, Bytes)> {
        let mut answers = vec![];
        while answers.last().is_none_or(|(last, _)| *last != char::from(tag)) {
            answers.push(self.next().await.expect("the server closed the connection"));
        }
        answers
    }

    /// All answers until the server closes the connection.
    async fn rest(&mut self) -> Vec<(char, Bytes)> {
        let mut answers = vec![];
        while let Some(answer) = self.next().await {
            answers.push(answer);
        }
        answers
    }
}

fn tags(answers: &[(char, Bytes)]) -> String {
    answers.iter().map(|(tag, _)| *tag).collect()
}

/// The state of the one error among the answers.
fn state(answers: &[(char, Bytes)]) -> String {
    let errors: Vec<_> = answers.iter().filter(|(tag, _)| *tag == 'E').collect();
    assert_eq!(errors.len(), 1, "{answers:?}");
    let fields = errors[0].1.split(|b| *b == 0).map(|field| std::str::from_utf8(field).unwrap());
    fields.filter_map(|field| field.strip_prefix('C')).next().unwrap().to_string()
}

fn query(sql: &str) -> Message {
    Message::Query(Query::new(sql.into()))
}

fn parse(name: &str, sql: &str) -> Message {
    Message::Parse(Parse::new(Some(name.into()), sql.into(), vec![]))
}

fn bind(portal: &str, statement: &str) -> Message {
    Message::Bind(Bind::new(Some(portal.into()), Some(statement.into()), vec![], vec![], vec![]))
}

fn execute(portal: &str, rows: i32) -> Message {
    Message::Execute(Execute::new(Some(portal.into()), rows))
}

fn data(data: &'static [u8]) -> Message {
    Message::CopyData(CopyData::new(Bytes::from_static(data)))
}

fn done() -> Message {
    Message::CopyDone(CopyDone::new())
}

fn sync() -> Message {
    Message::Sync(Sync::new())
}

#[tokio::test]
async fn encryption_is_declined() {
    let server = Server::start().await;
    let mut raw = Raw::open(&server).await;
    for code in [80_877_104u32, 80_877_103] {
        raw.bytes(&[&8u32.to_be_bytes()[..], &code.to_be_bytes()].concat()).await;
        assert_eq!(raw.stream.read_u8().await.unwrap(), b'N');
    }
    raw.bytes(b"\0\0\0\x13\0\x03\0\x09user\0root\0\0").await;
    let answers = raw.until(b'Z').await;
    assert_eq!(tags(&answers), "vRSSSKZ");
    assert_eq!(&answers[0].1[..], b"\0\x03\0\0\0\0\0\0");
}

#[tokio::test]
async fn garbage_before_login_ends_that_connection_alone() {
    let server = Server::start().await;
    let mut good = Raw::login(&server).await;
    for garbage in [
        &b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..],
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\0\0\0\x04\0\0\0\0",
        b"\0\0\0\x08\0\x03\0\0",
        b"\0\0\0\x0d\0\x03\0\0user\0",
        b"\0\0\0\x09\0\x03\0\0\0",
        b"\0\0\0\x09\0\x02\0\0\0",
    ] {
        let mut raw = Raw::open(&server).await;
        raw.bytes(garbage).await;
        assert_eq!(tags(&raw.rest().await), "E", "{garbage:?}");
    }
    good.send([query("rows 1")]).await;
    assert_eq!(tags(&good.until(b'Z').await), "TDCZ");
}

#[tokio::test]
async fn malformed_messages_end_that_connection_alone() {
    let server = Server::start().await;
    let mut good = Raw::login(&server).await;
    for garbage in [
        &b"!\0\0\0\x04"[..],
        b"Q\0\0\0\x03",
        b"Q\xff\xff\xff\xff",
        b"Q\x7f\xff\xff\xff",
        b"S\0\0\xff\xff",
        b"Q\0\0\0\x08rows",
        b"B\0\0\0\x0c\0\0\0\0\xff\xff\x7f\xff",
        b"p\0\0\0\x09pass\0",
    ] {
        let mut raw = Raw::login(&server).await;
        raw.bytes(garbage).await;
        assert_eq!(state(&raw.rest().await), "08P01", "{garbage:?}");
    }
    good.send([query("rows 1")]).await;
    assert_eq!(tags(&good.until(b'Z').await), "TDCZ");
}

#[tokio::test]
async fn after_an_error_everything_is_skipped_until_sync() {
    let server = Server::start().await;
    let mut raw = Raw::login(&server).await;
    let messages = [parse("", "fail"), bind("", ""), execute("", 0), parse("", "rows 1"), query("rows 1"), sync()];
    raw.send(messages).await;
    let answers = raw.until(b'Z').await;
    assert_eq!((tags(&answers).as_str(), state(&answers).as_str()), ("12EZ", "22012"));
    raw.send([parse("", "rows 1"), bind("", ""), Message::Describe(Describe::new(b'P', None)), execute("", 0)]).await;
    raw.send([sync()]).await;
    assert_eq!(tags(&raw.until(b'Z').await), "12TDCZ");
    // An error needs no Sync to be told.
    raw.send([bind("", "nothing")]).await;
    assert_eq!(state(&[raw.next().await.unwrap()]), "26000");
    raw.send([sync(), execute("nothing", 0), sync()]).await;
    assert_eq!(tags(&raw.until(b'Z').await), "Z");
    assert_eq!(state(&raw.until(b'Z').await), "34000");
}

#[tokio::test]
async fn flush_sends_what_is_there() {
    let server = Server::start().await;
    let mut raw = Raw::login(&server).await;
    let describe = Message::Describe(Describe::new(b'S', Some("s".into())));
    raw.send([parse("s", "insert 1"), describe, Message::Flush(Flush::new())]).await;
    assert_eq!(tags(&raw.until(b'n').await), "1tn");
    raw.send([bind("p", "s"), execute("p", 0), Message::Flush(Flush::new())]).await;
    let answers = raw.until(b'C').await;
    assert_eq!(tags(&answers), "2NC");
    assert_eq!(&answers[2].1[..], b"INSERT 0 1\0");
    raw.send([execute("p", 0), sync()]).await;
    assert_eq!(state(&raw.until(b'Z').await), "55000");
}

#[tokio::test]
async fn portals_suspend_and_end_with_their_transaction() {
    let server = Server::start().await;
    let mut raw = Raw::login(&server).await;
    raw.send([parse("s", "rows 3"), bind("p", "s"), execute("p", 2), execute("p", 2), execute("p", 2), sync()]).await;
    let answers = raw.until(b'Z').await;
    assert_eq!(tags(&answers), "12DDsDCCZ");
    assert_eq!((&answers[6].1[..], &answers[7].1[..]), (&b"SELECT 1\0"[..], &b"SELECT 0\0"[..]));
    raw.send([execute("p", 2), sync()]).await;
    assert_eq!(state(&raw.until(b'Z').await), "34000");
    raw.send([query("begin"), bind("p", "s"), execute("p", 1), sync(), execute("p", 1), sync()]).await;
    assert_eq!(tags(&raw.until(b'Z').await), "CZ");
    assert_eq!(tags(&raw.until(b'Z').await), "2DsZ");
    let answers = raw.until(b'Z').await;
    assert_eq!(tags(&answers), "DsZ");
    assert_eq!(&answers[2].1[..], b"T");
    raw.send([bind("p", "s"), sync()]).await;
    let answers = raw.until(b'Z').await;
    assert_eq!((state(&answers).as_str(), &answers[1].1[..]), ("42P03", &b"E"[..]));
    raw.send([Message::Close(Close::new(b'S', Some("s".into()))), parse("s", "rows 1"), parse("s", "rows 1"), sync()])
        .await;
    let answers = raw.until(b'Z').await;
    assert_eq!((tags(&answers).as_str(), state(&answers).as_str()), ("31EZ", "42P05"));
}

#[tokio::test]
async fn empty_texts_are_answered_as_such() {
    let server = Server::start().await;
    let mut raw = Raw::login(&server).await;
    raw.send([query("")]).await;
    assert_eq!(tags(&raw.until(b'Z').await), "IZ");
    let describe = Message::Describe(Describe::new(b'S', None));
    raw.send([parse("", " ; "), describe, bind("", ""), execute("", 0), sync()]).await;
    assert_eq!(tags(&raw.until(b'Z').await), "1tn2IZ");
}

#[tokio::test]
async fn changed_settings_are_told() {
    let server = Server::start().await;
    let mut raw = Raw::login(&server).await;
    raw.send([query("name new"), query("rows 0")]).await;
    let answers = raw.until(b'Z').await;
    assert_eq!(tags(&answers), "CSZ");
    assert_eq!(&answers[1].1[..], b"application_name\0new\0");
    assert_eq!(tags(&raw.until(b'Z').await), "TCZ");
}

#[tokio::test]
async fn text_that_is_not_utf8_is_an_error_of_the_message() {
    let server = Server::start().await;
    let mut raw = Raw::login(&server).await;
    raw.bytes(b"Q\0\0\0\x06\xff\0").await;
    assert_eq!(state(&raw.until(b'Z').await), "22021");
    raw.send([query("rows 1")]).await;
    assert_eq!(tags(&raw.until(b'Z').await), "TDCZ");
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_its_query_back() {
    let server = Server::start().await;
    let mut raw = Raw::login(&server).await;
    raw.send([query("rows 100000000")]).await;
    let mut before = usize::MAX;
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let read = server.batches_read.load(Ordering::SeqCst);
        if read == before {
            break;
        }
        before = read;
    }
    assert!(before < 20_000, "{before} batches were read for a client that reads nothing");
    // It can be told to stop all the same, and its neighbours do not notice.
    let mut good = Raw::login(&server).await;
    good.send([query("rows 1")]).await;
    assert_eq!(tags(&good.until(b'Z').await), "TDCZ");
    server.stop().await;
}

#[tokio::test]
async fn copies_go_out() {
    let server = Server::start().await;
    let mut raw = Raw::login(&server).await;
    raw.send([query("copy out format=csv header; rows 1")]).await;
    let answers = raw.until(b'Z').await;
    assert_eq!(tags(&answers), "HddddcCTDCZ");
    let lines: Vec<u8> = answers.iter().filter(|(tag, _)| *tag == 'd').flat_map(|(_, line)| line.to_vec()).collect();
    assert_eq!(lines, b"n\n0\n1\n2\n");
    assert_eq!(&answers[6].1[..], b"COPY 3\0");
    let describe = Message::Describe(Describe::new(b'P', None));
    raw.send([parse("", "copy out format=binary"), bind("", ""), describe, execute("", 0), sync()]).await;
    let answers = raw.until(b'Z').await;
    assert_eq!(tags(&answers), "12nHddddcCZ");
    assert_eq!(&answers[4].1[..], b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\x04\0\0\0\0");
}

#[tokio::test]
async fn copies_come_in() {
    let server = Server::start().await;
    let mut raw = Raw::login(&server).await;
    raw.send([query("copy in"), data(b"1\n2"), data(b"3\n\\N"), sync(), done()]).await;
    let answers = raw.until(b'Z').await;
    assert_eq!((tags(&answers).as_str(), &answers[1].1[..]), ("GCZ", &b"COPY 3\0"[..]));
    raw.send([parse("", "copy in format=csv"), bind("", ""), execute("", 0), sync(), data(b"1\n"), done(), sync()])
        .await;
    assert_eq!(tags(&raw.until(b'Z').await), "12GCZ");
    assert_eq!(server.copied.load(Ordering::SeqCst), 4);
    // What fails leaves nothing behind, and data that is still on its way is not taken for anything else.
    raw.send([query("copy in"), data(b"1\n"), Message::CopyFail(CopyFail::new("no".into()))]).await;
    assert_eq!(state(&raw.until(b'Z').await), "57014");
    raw.send([query("copy in"), data(b"1\nx\n"), data(b"2\n"), done(), query("rows 1")]).await;
    assert_eq!(state(&raw.until(b'Z').await), "22P02");
    assert_eq!(tags(&raw.until(b'Z').await), "TDCZ");
    raw.send([query("copy in"), query("rows 1")]).await;
    assert_eq!(state(&raw.rest().await), "08P01");
    assert_eq!(server.copied.load(Ordering::SeqCst), 4);
}
