PRAGMA journal_mode = DELETE;
CREATE TABLE rows(id INTEGER PRIMARY KEY, name TEXT, amount REAL, day INTEGER);
.mode csv
.import --skip 1 input/rows.csv rows
.mode list
CREATE INDEX by_name ON rows(name, day);
SELECT count(*), round(sum(amount), 2), min(day), max(day) FROM rows;
BEGIN;
UPDATE rows SET amount = amount * 1.5 WHERE day % 3 = 0;
DELETE FROM rows WHERE id % 17 = 0;
COMMIT;
SELECT name, count(*), round(avg(amount), 3) FROM rows GROUP BY name ORDER BY 2 DESC, 1 LIMIT 15;
SELECT a.day, count(*) FROM rows a JOIN rows b ON a.name = b.name AND a.day = b.day + 1 WHERE a.id < 3000 GROUP BY a.day ORDER BY a.day LIMIT 10;
WITH RECURSIVE n(i, h) AS (SELECT 1, 7 UNION ALL SELECT i + 1, (h * 31 + i) % 1000003 FROM n WHERE i < 200000)
SELECT max(h), sum(h) FROM n;
BEGIN;
INSERT INTO rows(name, amount, day) SELECT name || 'x', amount / 2, day FROM rows WHERE id < 20000;
ROLLBACK;
PRAGMA integrity_check;
SELECT count(*) FROM rows;
