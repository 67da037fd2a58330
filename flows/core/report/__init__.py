"""What people open in the morning: tables, summary, page, workbook, the view across runs.

Keep out: deciding what a row's state is (`results`).
"""
