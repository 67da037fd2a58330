"""The partner's interface beyond the file.

Client, commands, single links, jobs, placements, transaction reports. Put here whatever exists only
where the issuer has a table `[service]`. Keep out the file interface: a run needs nothing of this
folder.
"""
