//! The promises of the store: nothing acknowledged is lost, nothing damaged is believed, nothing
//! grows without bound.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;

use proptest::prelude::*;
use redb::StorageBackend;
use redb::backends::FileBackend;
use tempfile::tempdir;
use tokio::io::AsyncWriteExt as _;

use super::*;

const ALL: [StoreTable; 3] = [StoreTable::Tasks, StoreTable::Turns, StoreTable::Sessions];
/// Marks the test process that is to be killed, and names its directory.
const VICTIM: &str = "STORE_TEST_VICTIM";

type Rows = BTreeMap<(StoreTable, Vec<u8>), Vec<u8>>;

fn rows(store: &Store) -> Result<Rows, StoreProblem> {
    let mut rows = Rows::new();
    for table in ALL {
        store.load(table, |key, value| {
            assert!(rows.insert((table, key.to_vec()), value.to_vec()).is_none(), "{key:?} twice");
        })?;
    }
    Ok(rows)
}

fn put(store: &Store, key: &str, value: &str) -> Result<(), StoreProblem> {
    store.put(StoreTable::Tasks, key.as_bytes().to_vec(), value.as_bytes().to_vec())
}

fn value_of(key: u32) -> Vec<u8> {
    key.to_be_bytes().repeat(50)
}

#[tokio::test]
async fn flushed_records_are_restored() {
    let home = tempdir().unwrap();
    let dir = home.path().join("data/here");
    let store = open(&dir).unwrap();
    let mut expected = Rows::new();
    for (number, table) in ALL.into_iter().cycle().take(30).enumerate() {
        let (key, value) = (vec![u8::try_from(number).unwrap()], vec![7; number]);
        store.put(table, key.clone(), value.clone()).unwrap();
        expected.insert((table, key), value);
    }
    store.remove(StoreTable::Turns, vec![1]).unwrap();
    store.remove(StoreTable::Turns, b"never there".to_vec()).unwrap();
    expected.remove(&(StoreTable::Turns, vec![1])).unwrap();
    store.flush().await.unwrap();
    assert_eq!(rows(&store).unwrap(), expected);
    drop(store);
    assert_eq!(rows(&open(&dir).unwrap()).unwrap(), expected);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&dir), mode(&dir.join("tasks.redb"))), (0o700, 0o600));
}

#[tokio::test]
async fn a_closed_store_has_written_everything_and_takes_nothing() {
    let home = tempdir().unwrap();
    let store = open(home.path()).unwrap();
    put(&store, "a", "1").unwrap();
    store.close().unwrap();
    assert_eq!(put(&store, "b", "2"), Err(StoreProblem::Closed));
    assert_eq!(rows(&store).unwrap_err(), StoreProblem::Closed);
    store.flush().await.unwrap();
    store.close().unwrap();
    let again = open(home.path()).unwrap();
    assert_eq!(rows(&again).unwrap().len(), 1);
}

/// Opens a store that was closed a moment ago: a process that another test is just starting still
/// holds its lock.
fn open(dir: &Path) -> Result<Store, StoreProblem> {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        match Store::open(dir) {
            Err(StoreProblem::Owned { .. }) if Instant::now() < until => std::thread::yield_now(),
            opened => return opened,
        }
    }
}

#[test]
fn change_without_waiter_is_written() {
    let home = tempdir().unwrap();
    let store = open(home.path()).unwrap();
    put(&store, "a", "1").unwrap();
    while store.waiting() > 0 {
        std::thread::yield_now();
    }
    assert_eq!(store.commits(), 1);
    assert_eq!(rows(&store).unwrap().len(), 1);
}

#[test]
fn a_file_has_one_owner() {
    let home = tempdir().unwrap();
    let store = open(home.path()).unwrap();
    let problem = Store::open(home.path()).err().unwrap();
    assert_eq!(problem, StoreProblem::Owned { file: home.path().join("tasks.redb") });
    drop(store);
    open(home.path()).unwrap();
}

#[tokio::test]
async fn those_who_wait_share_a_transaction() {
    let home = tempdir().unwrap();
    let store = Arc::new(open(home.path()).unwrap());
    let mut waiting = tokio::task::JoinSet::new();
    for number in 0_u32..1000 {
        let store = store.clone();
        waiting.spawn(async move {
            store.put(StoreTable::Tasks, number.to_be_bytes().to_vec(), value_of(number)).unwrap();
            store.flush().await.unwrap();
        });
    }
    waiting.join_all().await;
    assert!(store.commits() < 200, "{}", store.commits());
    assert_eq!(rows(&store).unwrap().len(), 1000);
}

#[tokio::test]
async fn a_slow_disk_does_not_make_the_queue_grow() {
    let home = tempdir().unwrap();
    let store = Store::start(StoreFile::open(home.path()).unwrap(), 20_000, WRITE_PACING).unwrap();
    let problem = store.put(StoreTable::Tasks, vec![0; 20_000], vec![]).unwrap_err();
    assert!(matches!(problem, StoreProblem::TooLarge(_)), "{problem:?}");
    let mut kept = Vec::new();
    {
        let _busy = lock(&store.shared.medium);
        let mut refused = 0;
        for number in 0_u32..1000 {
            match store.put(StoreTable::Tasks, number.to_be_bytes().to_vec(), value_of(number)) {
                Ok(()) => kept.push(number),
                Err(problem) => {
                    assert_eq!(problem, StoreProblem::Full);
                    refused += 1;
                }
            }
            assert!(store.waiting() <= 20_000);
        }
        assert!(kept.len() > 50 && refused > 500, "{} {refused}", kept.len());
    }
    store.flush().await.unwrap();
    assert_eq!(store.waiting(), 0);
    assert_eq!(rows(&store).unwrap().len(), kept.len());
    put(&store, "again", "there is room").unwrap();
}

/// A file on a disk that fails on demand.
#[derive(Debug)]
struct Moody(FileBackend, Arc<AtomicBool>);

impl Moody {
    fn ask(&self) -> io::Result<()> {
        if self.1.load(Ordering::SeqCst) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

impl StorageBackend for Moody {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.ask()?;
        self.0.set_len(len)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.ask()?;
        self.0.sync_data()
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.ask()?;
        self.0.write(offset, data)
    }
}

fn moody(dir: &Path, pace: WritePacing) -> (Store, Arc<AtomicBool>) {
    let fails = Arc::new(AtomicBool::new(false));
    let mood = fails.clone();
    let open = move |file: &Path| {
        let file = OpenOptions::new().read(true).write(true).open(file)?;
        redb::Builder::new().create_with_backend(Moody(FileBackend::new(file)?, mood.clone()))
    };
    let disk = StoreFile::open_with(dir, Box::new(open)).unwrap();
    (Store::start(disk, MOST_WAITING, pace).unwrap(), fails)
}

#[tokio::test]
async fn a_disk_that_works_again_is_tried_by_itself() {
    let home = tempdir().unwrap();
    let (store, fails) = moody(home.path(), WritePacing { retry: Duration::from_millis(1), ..WRITE_PACING });
    fails.store(true, Ordering::SeqCst);
    put(&store, "a", "1").unwrap();
    store.flush().await.unwrap_err();
    fails.store(false, Ordering::SeqCst);
    while store.waiting() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(rows(&store).unwrap().len(), 1);
    store.flush().await.unwrap();
}

#[tokio::test]
async fn a_failing_disk_is_told_counted_and_forgiven() {
    let home = tempdir().unwrap();
    let (store, fails) = moody(home.path(), WRITE_PACING);
    put(&store, "a", "kept").unwrap();
    store.flush().await.unwrap();

    fails.store(true, Ordering::SeqCst);
    put(&store, "a", "newer").unwrap();
    put(&store, "b", "kept later").unwrap();
    let problem = store.flush().await.unwrap_err();
    assert!(matches!(problem, StoreProblem::Disk { .. }), "{problem:?}");
    put(&store, "a", "newest").unwrap();
    assert_eq!(store.flush().await, Err(problem), "and the later ones are told, too");
    assert_eq!((store.commits(), store.failures()), (1, 1));

    fails.store(false, Ordering::SeqCst);
    store.close().unwrap();
    assert_eq!((store.commits(), store.failures()), (2, 1));
    let rows = rows(&open(home.path()).unwrap()).unwrap();
    let values: Vec<&[u8]> = rows.values().map(Vec::as_slice).collect();
    assert_eq!(values, [b"newest".as_slice(), b"kept later"]);
}

#[test]
fn a_store_that_could_not_write_at_the_end_says_so() {
    let home = tempdir().unwrap();
    let (store, fails) =
        moody(home.path(), WritePacing { linger: Duration::from_secs(3600), ..WRITE_PACING });
    fails.store(true, Ordering::SeqCst);
    put(&store, "a", "lost").unwrap();
    assert!(matches!(store.close(), Err(StoreProblem::Disk { .. })));
    assert!(rows(&open(home.path()).unwrap()).unwrap().is_empty());
}

#[test]
fn a_damaged_file_is_never_believed() {
    let home = tempdir().unwrap();
    let file = home.path().join("tasks.redb");
    let store = open(home.path()).unwrap();
    for number in 0_u32..400 {
        store.put(StoreTable::Tasks, number.to_be_bytes().to_vec(), value_of(number)).unwrap();
    }
    store.close().unwrap();
    let whole = fs::read(&file).unwrap();
    let expected = rows(&open(home.path()).unwrap()).unwrap();
    let judge = |what: &str, bytes: &[u8]| {
        fs::write(&file, bytes).unwrap();
        match open(home.path()).and_then(|store| rows(&store)) {
            Ok(rows) => assert!(rows == expected, "{what}: {} rows, without a word", rows.len()),
            Err(problem) => {
                assert!(matches!(problem, StoreProblem::Damaged { .. }), "{what}: {problem:?}");
                assert!(problem.to_string().contains("tasks.redb"), "{problem}");
                return 1;
            }
        }
        0
    };
    let mut refused = 0;
    // Every eighth byte of the header, then some of each page.
    for at in (0..512).step_by(8).chain((512..whole.len()).step_by(whole.len() / 150 + 1)) {
        let mut spoilt = whole.clone();
        spoilt[at] ^= 0x41;
        refused += judge(&format!("byte {at}"), &spoilt);
    }
    for length in [0, 1, 100, 4096, whole.len() / 2, whole.len() - 1] {
        refused += judge(&format!("cut to {length}"), &whole[..length]);
    }
    refused += judge("another file", b"this is no database, but a letter to somebody else");
    assert!(refused > 20, "{refused}");
    assert_eq!(judge("the file itself", &whole), 0);
}

#[test]
fn incomplete_store_is_created_again() {
    let home = tempdir().unwrap();
    fs::write(home.path().join("tasks.redb.new"), "half").unwrap();
    let store = open(home.path()).unwrap();
    assert!(rows(&store).unwrap().is_empty());
    assert!(!home.path().join("tasks.redb.new").exists());
}

/// No test of its own: the process that the next one kills. Prints each key after it was flushed.
#[test]
fn victim() {
    let Some(dir) = std::env::var_os(VICTIM) else { return };
    let store = open(Path::new(&dir)).unwrap();
    let begin = u32::try_from(rows(&store).unwrap().len()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let write = |lane: u32| {
            let store = &store;
            async move {
                for number in (begin + lane..begin + 1_000_000).step_by(4) {
                    store.put(StoreTable::Tasks, number.to_be_bytes().to_vec(), value_of(number)).unwrap();
                    store.flush().await.unwrap();
                    println!("\nkept {number}");
                }
            }
        };
        tokio::join!(write(0), write(1), write(2), write(3));
    });
}

#[test]
fn a_killed_process_loses_nothing_that_it_acknowledged() {
    let home = tempdir().unwrap();
    let mut kept = Vec::new();
    for (round, enough) in [1, 40, 333].into_iter().enumerate() {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", "tasks::store::tests::victim"])
            .env(VICTIM, home.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut seen = 0;
        for line in lines.map_while(Result::ok) {
            let Some(number) = line.strip_prefix("kept ").and_then(|number| number.parse::<u32>().ok())
            else {
                continue;
            };
            kept.push(number);
            seen += 1;
            if seen == enough {
                let refused = Store::open(home.path()).err();
                child.kill().unwrap();
                assert!(matches!(refused, Some(StoreProblem::Owned { .. })), "{refused:?}");
            }
        }
        assert!(seen >= enough, "the victim ended by itself");
        child.wait().unwrap();
        let rows = rows(&open(home.path()).unwrap()).unwrap();
        for number in &kept {
            let row = rows.get(&(StoreTable::Tasks, number.to_be_bytes().to_vec()));
            assert_eq!(row, Some(&value_of(*number)), "round {round}: {number}");
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Put(StoreTable, u8, Vec<u8>),
    Remove(StoreTable, u8),
    Flush,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let table = prop::sample::select(ALL.as_slice());
    prop_oneof![
        6 => (table.clone(), 0..6_u8, prop::collection::vec(any::<u8>(), 0..40))
            .prop_map(|(table, key, value)| Step::Put(table, key, value)),
        3 => (table, 0..6_u8).prop_map(|(table, key)| Step::Remove(table, key)),
        1 => Just(Step::Flush),
        1 => Just(Step::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn any_sequence_equals_a_map(steps in prop::collection::vec(step(), 0..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let home = tempdir().unwrap();
        let mut store = open(home.path()).unwrap();
        let mut model = Rows::new();
        for step in steps {
            match step {
                Step::Put(table, key, value) => {
                    store.put(table, vec![key], value.clone()).unwrap();
                    model.insert((table, vec![key]), value);
                }
                Step::Remove(table, key) => {
                    store.remove(table, vec![key]).unwrap();
                    model.remove(&(table, vec![key]));
                }
                Step::Flush => {
                    runtime.block_on(store.flush()).unwrap();
                    prop_assert_eq!(&rows(&store).unwrap(), &model);
                }
                Step::Reopen => {
                    drop(store);
                    store = open(home.path()).unwrap();
                    prop_assert_eq!(&rows(&store).unwrap(), &model);
                }
            }
        }
    }
}

/// Returns a store that forwards its rows, and the other end.
fn pair(told: impl Fn(SuccessorMessage) + Send + 'static) -> (Store, tokio::net::UnixStream) {
    let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
    there.set_nonblocking(true).unwrap();
    (Store::over(here, told).unwrap(), tokio::net::UnixStream::from_std(there).unwrap())
}

#[tokio::test]
async fn rows_go_to_the_process_that_takes_over_and_are_safe_when_it_says_so() {
    let (tell, told) = std::sync::mpsc::channel();
    let (store, mut there) = pair(move |word| tell.send(word).unwrap());
    put(&store, "a", "1").unwrap();
    store.remove(StoreTable::Sessions, b"b".to_vec()).unwrap();
    let row = |table, key: &str, value: Option<&str>| {
        RowFrame::Row(table, key.as_bytes().to_vec(), value.map(|value| value.as_bytes().to_vec()))
    };
    let taken = async {
        let mut rows = Vec::new();
        loop {
            match RowFrame::read(&mut there).await.unwrap().unwrap() {
                RowFrame::End => break,
                row => rows.push(row),
            }
        }
        for word in
            [SuccessorMessage::Serves, SuccessorMessage::Ended([7; 16], 9), SuccessorMessage::Kept(true)]
        {
            there.write_all(&word.to_bytes()).await.unwrap();
        }
        rows
    };
    let (rows, flushed) = tokio::join!(taken, store.flush());
    assert_eq!(rows, [row(StoreTable::Tasks, "a", Some("1")), row(StoreTable::Sessions, "b", None)]);
    assert_eq!(flushed, Ok(()));
    assert_eq!(
        (told.recv(), told.recv()),
        (Ok(SuccessorMessage::Serves), Ok(SuccessorMessage::Ended([7; 16], 9)))
    );
    put(&store, "c", "2").unwrap();
    let refuse = async {
        while RowFrame::read(&mut there).await.unwrap().unwrap() != RowFrame::End {}
        there.write_all(&SuccessorMessage::Kept(false).to_bytes()).await.unwrap();
    };
    assert_eq!(tokio::join!(refuse, store.flush()).1, Err(StoreProblem::NotKept));
}

#[tokio::test]
async fn a_process_that_took_over_and_is_gone_costs_its_rows_alone() {
    let (store, there) = pair(|_| ());
    drop(there);
    put(&store, "a", "1").unwrap();
    assert_eq!(store.flush().await, Err(StoreProblem::Closed));
    assert_eq!(put(&store, "b", "1"), Err(StoreProblem::Closed));
}

#[tokio::test]
async fn a_frame_that_is_none_is_refused_before_room_is_taken() {
    let row =
        |table: u8, key: u32| [&[table, 1][..], &key.to_be_bytes(), &4_u32.to_be_bytes(), b"keyv"].concat();
    for bytes in [vec![9], vec![0, 1, 0], row(0, u32::MAX), row(0, 1000), row(7, 3), row(0, 1)] {
        assert!(RowFrame::read(&mut bytes.as_slice()).await.is_err(), "{bytes:?}");
    }
    assert_eq!(RowFrame::read(&mut &b""[..]).await.unwrap(), None);
}
