// The cookie is set; go on without the token in the address, and keep the deep link.
location.replace("./" + location.hash);
