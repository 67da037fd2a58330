"""What an operator does to put right what went wrong: a module per verb, each with a dry run and a record."""
