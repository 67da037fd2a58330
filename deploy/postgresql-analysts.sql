-- What a role of analysts may read: the views, and no table. Run it as the owner of the tables, after
-- each upgrade, which makes the views anew:
--   psql --set analysts=ROLE --file postgresql-analysts.sql DATABASE
GRANT USAGE ON SCHEMA public TO :"analysts";
GRANT SELECT ON cardholders, attempts, runs, outstanding, weeks, placements TO :"analysts";
