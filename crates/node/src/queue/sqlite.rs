//! The journal on this machine's disk: SQLite with a write-ahead log. A record that [`Sqlite::write`] has taken is there after a crash and a power cut.
//! A node that may keep a queue whose journal is in etcd has its history in such a file, too.

use super::journal::{Broken, MOST_NOTICES, Old, Search};
use super::tell::Notice;
use pando_queue::Record;
use rusqlite::{Connection, OpenFlags, Transaction, params};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

/// The form of the tables, as `PRAGMA user_version` has it.
pub(super) const VERSION: i64 = 2;
/// Another process that reads the file (a backup) is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// See above.
pub struct Sqlite {
    db: Connection,
}

impl Sqlite {
    /// The journal in this file, which is made if there is none.
    pub fn open(file: &Path) -> Result<Sqlite, Broken> {
        // Others' scripts and environments are in it. What is made beside it gets the same mode.
        let own = |file: &Path| std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600));
        std::fs::OpenOptions::new().append(true).create(true).mode(0o600).open(file).map_err(Broken::File)?;
        own(file).map_err(Broken::File)?;
        for end in ["-wal", "-shm"] {
            let mut beside = file.as_os_str().to_owned();
            beside.push(end);
            let _ = own(Path::new(&beside));
        }
        let mut db = Connection::open(file)?;
        db.busy_timeout(PATIENCE)?;
        db.pragma_update(None, "journal_mode", "wal")?;
        // Each transaction is on the disk when it has ended, and not only in the system's memory.
        db.pragma_update(None, "synchronous", "full")?;
        let found = db.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        if found > VERSION {
            return Err(Broken::Later { found, known: VERSION });
        }
        let change = db.transaction()?;
        upgrade(&change, found)?;
        change.commit()?;
        Ok(Sqlite { db })
    }

    /// A copy of a history that is elsewhere: what of it is not on the disk yet when the power fails is copied again. With the number of the last batch that it has.
    pub fn open_copy(file: &Path) -> Result<(Sqlite, u64), Broken> {
        let copy = Sqlite::open(file)?;
        copy.db.pragma_update(None, "synchronous", "normal")?;
        copy.db.execute_batch("CREATE TABLE IF NOT EXISTS copied (one INTEGER PRIMARY KEY, batch INTEGER NOT NULL)")?;
        let last: i64 = copy.db.query_row("SELECT coalesce(max(batch), 0) FROM copied", [], |row| row.get(0))?;
        Ok((copy, u64::try_from(last).unwrap_or(0)))
    }

    /// Takes a batch of it in.
    pub fn copy(&mut self, batch: u64, old: &[Old]) -> Result<(), Broken> {
        let change = self.db.transaction()?;
        insert_old(&change, old)?;
        change.execute("INSERT OR REPLACE INTO copied (one, batch) VALUES (1, ?1)", [batch])?;
        change.commit()?;
        Ok(())
    }

    /// The same file for reading, beside the one who writes it.
    pub fn read_beside(file: &Path) -> Result<Sqlite, Broken> {
        let db = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        db.busy_timeout(PATIENCE)?;
        Ok(Sqlite { db })
    }

    /// All tasks that ended then or later, one after the other.
    pub fn each(&self, user: Option<&str>, since: u64, mut what: impl FnMut(Old)) -> Result<(), Broken> {
        let mut rows = self.db.prepare(
            "SELECT number, name, user, account, outcome FROM history WHERE (?1 IS NULL OR user = ?1) AND ended >= ?2",
        )?;
        let found = rows.query_map(params![user, since], |row| {
            Ok((row.get::<_, i64>(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get::<_, String>(4)?))
        })?;
        for row in found {
            let (number, name, user, account, text) = row?;
            let outcome = serde_json::from_str(&text).map_err(|e| Broken::Record { number, why: e.to_string() })?;
            what(Old { name, user, account, outcome });
        }
        Ok(())
    }

    /// All records, in their order.
    pub fn records(&self) -> Result<Vec<Record>, Broken> {
        let mut all = self.db.prepare("SELECT number, record FROM records ORDER BY number")?;
        let rows = all.query_map([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)))?;
        rows.map(|row| {
            let (number, text) = row?;
            serde_json::from_str(&text).map_err(|e| Broken::Record { number, why: e.to_string() })
        })
        .collect()
    }

    /// Stores records, tasks that have ended, and what users are to be told, all or none.
    pub fn write(&mut self, records: &[Record], old: &[Old], notices: &[Notice]) -> Result<(), Broken> {
        let change = self.db.transaction()?;
        insert(&change, records)?;
        insert_notices(&change, notices)?;
        insert_old(&change, old)?;
        change.commit()?;
        Ok(())
    }

    /// Notices that were not told yet, of larger numbers than this, the oldest first.
    pub fn notices(&self, after: i64) -> Result<Vec<(i64, Notice)>, Broken> {
        let mut all = self.db.prepare_cached("SELECT number, notice FROM notices WHERE number > ?1 ORDER BY number")?;
        let rows = all.query_map([after], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)))?;
        let one = |row: rusqlite::Result<(i64, String)>| {
            let (number, text) = row?;
            let wrong = |e: serde_json::Error| Broken::Record { number, why: e.to_string() };
            Ok((number, serde_json::from_str(&text).map_err(wrong)?))
        };
        rows.map(one).collect()
    }

    /// It has been told.
    pub fn strike(&self, number: i64) -> Result<(), Broken> {
        self.db.prepare_cached("DELETE FROM notices WHERE number = ?1")?.execute([number])?;
        Ok(())
    }

    /// These in the place of all that there are, which say the same in more words.
    pub fn shorten(&mut self, records: &[Record]) -> Result<(), Broken> {
        let change = self.db.transaction()?;
        change.execute("DELETE FROM records", [])?;
        insert(&change, records)?;
        change.commit()?;
        Ok(())
    }

    /// The largest number of a job up to this one that the history knows.
    pub fn upto(&self, job: u64) -> Result<Option<u64>, Broken> {
        let mut row = self.db.prepare_cached("SELECT max(job) FROM history WHERE job <= ?1")?;
        Ok(row.query_row([job], |row| row.get(0))?)
    }

    /// Tasks that have ended, the newest last.
    pub fn history(&self, search: &Search) -> Result<Vec<Old>, Broken> {
        let mut rows = self.db.prepare_cached(
            "SELECT number, name, user, account, outcome FROM history
             WHERE (?1 IS NULL OR user = ?1) AND (?2 IS NULL OR job = ?2) AND ended >= ?3 AND (?5 IS NULL OR task = ?5) ORDER BY number DESC LIMIT ?4",
        )?;
        let found = rows
            .query_map(params![search.user, search.job, search.since, search.most, search.task], |row| {
                Ok((row.get::<_, i64>(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get::<_, String>(4)?))
            })?;
        let mut all = Vec::new();
        for row in found {
            let (number, name, user, account, text) = row?;
            let outcome = serde_json::from_str(&text).map_err(|e| Broken::Record { number, why: e.to_string() })?;
            all.push(Old { name, user, account, outcome });
        }
        all.reverse();
        Ok(all)
    }
}

fn json(value: &impl serde::Serialize) -> String {
    // Only maps whose keys are no strings, and failing types, have no JSON: there are none in it.
    serde_json::to_string(value).unwrap_or_default()
}

fn insert(change: &Transaction<'_>, records: &[Record]) -> Result<(), Broken> {
    let mut row = change.prepare_cached("INSERT INTO records (record) VALUES (?1)")?;
    for record in records {
        row.execute([json(record)])?;
    }
    Ok(())
}

fn insert_old(change: &Transaction<'_>, old: &[Old]) -> Result<(), Broken> {
    let mut row = change.prepare_cached(
        "INSERT INTO history (job, task, run, user, account, name, ended, outcome) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
         ON CONFLICT DO NOTHING",
    )?;
    for Old { name, user, account, outcome } in old {
        let (id, text) = (outcome.id, json(outcome));
        let task = id.task.map_or(-1, i64::from);
        row.execute(params![id.job, task, outcome.run.run, user, account, name, outcome.ended, text])?;
    }
    Ok(())
}

fn insert_notices(change: &Transaction<'_>, notices: &[Notice]) -> Result<(), Broken> {
    if notices.is_empty() {
        return Ok(());
    }
    let there: i64 = change.query_row("SELECT count(*) FROM notices", [], |row| row.get(0))?;
    let room = usize::try_from(MOST_NOTICES as i64 - there).unwrap_or(0);
    if notices.len() > room {
        tracing::warn!("queue: users are not told of {} things: {MOST_NOTICES} wait already", notices.len() - room);
    }
    let mut row = change.prepare_cached("INSERT INTO notices (notice) VALUES (?1)")?;
    for notice in notices.iter().take(room) {
        row.execute([json(notice)])?;
    }
    Ok(())
}

/// From an earlier form to this one, step by step.
fn upgrade(change: &Transaction<'_>, found: i64) -> Result<(), Broken> {
    if found < 1 {
        change.execute_batch(
            "CREATE TABLE records (number INTEGER PRIMARY KEY AUTOINCREMENT, record TEXT NOT NULL);
             CREATE TABLE history (
                 number INTEGER PRIMARY KEY, job INTEGER NOT NULL, task INTEGER NOT NULL, run INTEGER NOT NULL,
                 user TEXT NOT NULL, account TEXT NOT NULL, name TEXT NOT NULL, ended INTEGER NOT NULL, outcome TEXT NOT NULL,
                 UNIQUE (job, task, run)
             );
             CREATE INDEX history_user ON history (user, ended);",
        )?;
    }
    if found < 2 {
        // A number is never used again: users know what they were told by it.
        change
            .execute_batch("CREATE TABLE notices (number INTEGER PRIMARY KEY AUTOINCREMENT, notice TEXT NOT NULL);")?;
    }
    change.pragma_update(None, "user_version", VERSION)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_queue::{Effect, Input, Queue, Settings, Spec, Work};
    use std::path::PathBuf;

    struct File(PathBuf);

    impl File {
        fn new(name: &str) -> File {
            let path = std::env::temp_dir().join(format!("pando-journal-{}-{name}", std::process::id()));
            let file = File(path);
            file.remove();
            file
        }

        fn remove(&self) {
            for end in ["", "-wal", "-shm"] {
                let _ = std::fs::remove_file(format!("{}{end}", self.0.display()));
            }
        }
    }

    impl Drop for File {
        fn drop(&mut self) {
            self.remove();
        }
    }

    /// As the first version has written it; it is not to be changed.
    const FIRST: &str = r#"
        CREATE TABLE records (number INTEGER PRIMARY KEY AUTOINCREMENT, record TEXT NOT NULL);
        CREATE TABLE history (
            number INTEGER PRIMARY KEY, job INTEGER NOT NULL, task INTEGER NOT NULL, run INTEGER NOT NULL,
            user TEXT NOT NULL, account TEXT NOT NULL, name TEXT NOT NULL, ended INTEGER NOT NULL, outcome TEXT NOT NULL,
            UNIQUE (job, task, run)
        );
        CREATE INDEX history_user ON history (user, ended);
        INSERT INTO records (record) VALUES
            ('{"at":1000,"change":{"Submitted":[1,{"user":"ann","account":"ann","name":"first","work":{"Words":["true"]},"directory":"/"}]}}'),
            ('{"at":1001,"change":{"Submitted":[2,{"user":"ben","account":"ben","name":"second","work":{"Words":["true"]},"directory":"/","hold":true}]}}'),
            ('{"at":1002,"change":{"Started":[1,0,[{"node":"n1","ranks":1,"cpus":1,"memory":0,"gres":[]}]]}}'),
            ('{"at":1003,"change":{"Began":[1,0]}}'),
            ('{"at":1004,"change":{"Ended":[1,0,"Completed",{"Exit":0},{"cpu_ms":3,"memory_mb":1,"read":0,"written":0}]}}');
        INSERT INTO history (job, task, run, user, account, name, ended, outcome) VALUES (1, -1, 0, 'ann', 'ann', 'first', 1004,
            '{"id":{"job":1,"task":null},"state":"Completed","how":{"Exit":0},
              "usage":{"cpu_ms":3,"memory_mb":1,"read":0,"written":0},
              "run":{"run":0,"started":1002,"began":1003,"shares":[{"node":"n1","ranks":1,"cpus":1,"memory":0,"gres":[]}],
                     "suspended_at":null,"suspended_ms":0,"ending":null},"ended":1004}');
        PRAGMA user_version = 1;
    "#;

    #[test]
    fn what_the_first_version_has_written_is_carried_on() {
        let file = File::new("first");
        Connection::open(&file.0).unwrap().execute_batch(FIRST).unwrap();
        let mut journal = Sqlite::open(&file.0).unwrap();
        let mut queue = Queue::restore(Settings::default(), journal.records().unwrap());
        let states: Vec<_> = queue.jobs().map(|job| (job.id, job.spec.name.clone(), job.is_over())).collect();
        assert_eq!(states, [(1, "first".to_owned(), true), (2, "second".to_owned(), false)]);
        let past = journal.history(&Search { most: 10, ..Search::default() }).unwrap();
        assert!(matches!(&past[..], [old] if old.name == "first" && old.outcome.usage.cpu_ms == 3), "{past:?}");
        let work = Work::Words(vec!["true".into()]);
        let spec = Spec { user: "cy".into(), work, directory: "/".into(), ..Spec::default() };
        let effects = queue.handle(2000, Input::Submit(Box::new(spec)));
        let records: Vec<Record> =
            effects.into_iter().filter_map(|e| if let Effect::Record(r) = e { Some(r) } else { None }).collect();
        journal.write(&records, &[], &[]).unwrap();
        drop(journal);
        let again = Sqlite::open(&file.0).unwrap();
        assert!(Queue::restore(Settings::default(), again.records().unwrap()).knows_the_same(&queue));
        assert_eq!(queue.jobs().last().map(|job| job.id), Some(3), "numbers go on");
    }

    #[test]
    fn what_a_later_version_has_written_is_left_alone() {
        let file = File::new("later");
        drop(Sqlite::open(&file.0).unwrap());
        let later = VERSION + 1;
        Connection::open(&file.0).unwrap().pragma_update(None, "user_version", later).unwrap();
        let why = Sqlite::open(&file.0).err().unwrap().to_string();
        assert!(
            why.contains("later version") && why.contains(&later.to_string()) && why.contains("start that one"),
            "{why}"
        );
        let left = Connection::open(&file.0).unwrap().query_row("PRAGMA user_version", [], |row| row.get(0));
        assert_eq!(left, Ok(later));
    }
}
