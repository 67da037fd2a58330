"""Make all tables.

While nothing is released this is the schema as it stands. With the first release it becomes a list
of what that release has, and every change after that a migration of its own.
"""

from alembic import op

from schemas.database import METADATA

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make all tables; an error where one is there already."""
    METADATA.create_all(op.get_bind(), checkfirst=False)
