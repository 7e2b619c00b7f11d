-- detent: compatible with 0009
-- Room that is reserved ahead for a tenant's next registrations: each takes what it needs from a row that no other one
-- holds at that moment, and the counter, which all would have to lock, is left alone until the room is used up. What
-- nobody took for a while is given up like any other reservation.
ALTER TABLE job_reservations ADD COLUMN spare boolean NOT NULL DEFAULT false;
CREATE INDEX job_reservations_spare ON job_reservations (tenant) WHERE spare;
