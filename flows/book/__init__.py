"""The book of an issuer's cardholders: where each of them stands, and why.

It is a projection of what is recorded (commits, ledgers, answers, decisions, single links), and a
function of that and a day, so that a link ends without anything being written. Whoever asks where a
cardholder stands reads the book. Put here who a cardholder is, what an attempt is, how attempts add
up, and what follows at a point in time; keep out what people read of it (`flows/reports`) and what
is sent next (`flows/resend`, `flows/submissions`).
"""
