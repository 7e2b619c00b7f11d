-- The last step of the separation: `add_substitute` created this second superuser for the renaming.
DROP ROLE IF EXISTS detent_substitute
