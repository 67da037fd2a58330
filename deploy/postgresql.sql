-- What the workers' role may do. Run it as the owner of the tables, after each upgrade:
--   psql --set workers=ROLE --file postgresql.sql DATABASE
GRANT USAGE ON SCHEMA public TO :"workers";
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO :"workers";
-- who did what is never changed and never removed
REVOKE UPDATE, DELETE, TRUNCATE ON journal FROM :"workers";
