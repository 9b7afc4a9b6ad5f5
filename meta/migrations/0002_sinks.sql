-- How far each sink has delivered.
CREATE TABLE sinks (
    id BIGINT PRIMARY KEY,
    -- Of the newest start of the delivery, which alone may write here.
    generation BIGINT NOT NULL,
    -- All changes up to this epoch are outside.
    epoch BIGINT NOT NULL
);

-- Commits that are about to be carried out outside, or may have been.
CREATE TABLE pending_sink_commits (
    commit_id TEXT PRIMARY KEY,
    sink BIGINT NOT NULL,
    generation BIGINT NOT NULL,
    epoch BIGINT NOT NULL,
    -- The commit as JSON.
    body TEXT NOT NULL,
    recorded_ms BIGINT NOT NULL
);
