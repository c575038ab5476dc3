"""What torch and JAX say of their arrays, asked of packages that are loaded already. Nothing above is imported here."""
