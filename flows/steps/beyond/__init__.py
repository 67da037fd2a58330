"""The partner's interface beyond the file: single links, jobs, placements and their funnel."""
