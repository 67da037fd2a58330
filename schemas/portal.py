"""The portal's input file: 20 columns, their order, names and rules (interface.md 2.6 and 8).

The partner's interface moves; what moves stands here and nowhere else.
"""

from __future__ import annotations

INTERFACE = "2.6/2026-11"  # goes into the settings digest: a changed contract is a changed run
MAX_ROWS = 1000  # cardholders per upload file

CUID = "cardholder.cuid"
PAN = "service_card.pan"
YEAR = "service_card.expiration_year"
MONTH = "service_card.expiration_month"
NAME_ON_CARD = "service_card.name_on_card"
CVV_HASH = "service_card.cvv_hash"
CVV = "service_card.cvv"
CUSTOMER_KEY = "service_card.customer_key"
NICKNAME = "service_card.nickname"
ADDRESS1 = "service_card.address.address1"
ADDRESS2 = "service_card.address.address2"
CITY = "service_card.address.city"
SUBNATIONAL = "service_card.address.subnational"
COUNTRY = "service_card.address.country"
POSTAL_CODE = "service_card.address.postal_code"
EMAIL = "service_card.address.email"
PHONE = "service_card.address.phone_number"
FIRST_NAME = "service_card.address.first_name"
LAST_NAME = "service_card.address.last_name"
IS_PRIMARY = "service_card.address.is_primary"
