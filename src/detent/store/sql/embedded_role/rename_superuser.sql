-- initdb's superuser cannot be demoted: it takes another name, and the product's role is made anew under the old one.
ALTER ROLE detent RENAME TO detent_admin
